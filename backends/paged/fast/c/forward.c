/* A step of rows with one token each, all layers in one call: `model.FastModel`, line by line.
 *
 * Called one by one from Python, the same functions take 4 ms longer for 30 layers (benchmarks/NOTES.md).
 */
#include "vector.h"

/* Numbers that each row needs of the room, by what they are for. */
struct widths {
    size_t hidden, qkv, attended, gated, scores;
};

static struct widths widths_of(const struct model *model, const struct step *step) {
    const size_t room_of_scores = (step->longest + LANES - 1) / LANES * LANES;
    return (struct widths){
        .hidden = model->hidden_size,
        .qkv = (model->heads + 2 * model->kv_heads) * model->head_dim,
        .attended = model->heads * model->head_dim,
        .gated = model->layers[0].mlp_out.inputs,
        .scores = model->heads * room_of_scores,
    };
}

static size_t largest(size_t a, size_t b) { return a > b ? a : b; }

size_t forward_room(const struct model *model, const struct step *step) {
    const struct widths w = widths_of(model, step);
    const struct layer *layer = model->layers;
    size_t products = 0;
    products = largest(products, multiply_room(&layer->qkv, step->rows));
    products = largest(products, multiply_room(&layer->attention_out, step->rows));
    products = largest(products, multiply_room(&layer->gate_and_up, step->rows));
    products = largest(products, multiply_room(&layer->mlp_out, step->rows));
    return step->rows * (w.hidden + w.qkv + w.attended + w.gated + w.scores) + products;
}

void forward(const struct model *model, const struct step *step, float *hidden, float *room) {
    const struct widths w = widths_of(model, step);
    const size_t rows = step->rows, heads = model->heads, kv_heads = model->kv_heads, head_dim = model->head_dim;
    float *normed = room, *qkv = normed + rows * w.hidden, *attended = qkv + rows * w.qkv;
    float *gated = attended + rows * w.attended, *scores = gated + rows * w.gated;
    float *products = scores + rows * w.scores;
    for (size_t i = 0; i < model->num_layers; i++) {
        const struct layer *layer = model->layers + i;
        float *cache = step->cache + i * step->slots_of_a_layer * 2 * kv_heads * head_dim;

        rms_norm(hidden, layer->attention_norm, model->eps, normed, rows, w.hidden);
        multiply(&layer->qkv, normed, NULL, qkv, rows, products);
        rotate_and_write(
            qkv, step->rotation, layer->qk_norm, model->eps, cache, step->writes, rows, heads, kv_heads, head_dim);
        attend_decode(
            qkv, cache, step->slots, step->lengths, scores, attended, rows, heads, kv_heads, head_dim,
            step->longest, w.qkv, model->scaling);
        multiply(&layer->attention_out, attended, hidden, hidden, rows, products);

        rms_norm(hidden, layer->mlp_norm, model->eps, normed, rows, w.hidden);
        multiply(&layer->gate_and_up, normed, NULL, gated, rows, products);
        multiply(&layer->mlp_out, gated, hidden, hidden, rows, products);
    }
}

void multiply(
    const struct weight *weight, const float *x, const float *residual, float *y, size_t rows, float *room) {
    if (weight->numbers)
        multiply_float(weight, x, residual, y, rows);
    else
        multiply_int8(weight, x, residual, y, rows, room);
}
