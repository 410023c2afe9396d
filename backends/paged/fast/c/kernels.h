/* What Python calls, and what these functions call of each other. Tensors are row-major float32. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define PANEL 16 /* outputs side by side in a weight: `panels.py` lays them so */

/* A weight W [outputs, inputs], laid in panels of 16 outputs; the last one is filled up with zeros.
 *
 * Gated, W is two weights G and U, each [outputs, inputs]: a panel is 8 outputs of G, then 8 of U.
 */
struct weight {
    const float *numbers;  /* [panels][inputs][16], or null where there are `bytes` */
    const int8_t *bytes;   /* [panels][inputs / 2][16][2], inputs filled up to a multiple of 4 */
    const float *scales;   /* of the bytes of each output */
    const float *bias;     /* or null; both are as long as the panels together */
    size_t inputs, outputs;
    int gated;
};

struct layer {
    const float *attention_norm, *mlp_norm; /* [hidden_size] */
    const float *qk_norm;                   /* [heads + kv_heads, head_dim], or null */
    struct weight qkv, attention_out, gate_and_up, mlp_out;
};

struct model {
    size_t num_layers, hidden_size, heads, kv_heads, head_dim;
    float eps, scaling;
    const struct layer *layers;
};

/* Rows of one token each: what `attention.PagedStep` says, and where K and V lie. */
struct step {
    size_t rows, longest;    /* `longest`: slots that the row with the most of them looks at */
    size_t slots_of_a_layer; /* in the cache */
    const float *rotation;   /* [rows, head_dim / 2, 2]: cosine and sine of each pair's angle */
    const long *writes;      /* [rows]: the slot where K and V of each row go */
    const long *slots;       /* [rows, longest]: those that each row looks at, */
    const long *lengths;     /* [rows]: the first so many of them */
    float *cache;            /* [layers, slots, 2, kv_heads, head_dim]: K, then V */
};

/* y = x W^T (+ bias) (+ residual), or y = silu(x G^T) * (x U^T) where gated.
 *
 * x [rows, inputs], y and residual [rows, outputs]; residual may be null, or y itself.
 */
void multiply(
    const struct weight *weight, const float *x, const float *residual, float *y, size_t rows, float *room);
size_t multiply_room(const struct weight *weight, size_t rows);
void multiply_float(const struct weight *weight, const float *x, const float *residual, float *y, size_t rows);
void multiply_int8(
    const struct weight *weight, const float *x, const float *residual, float *y, size_t rows, float *room);

/* y = RMSNorm(x), row by row; x and y [rows, size], weight [size] */
void rms_norm(const float *x, const float *weight, float eps, float *y, size_t rows, size_t size);

/* Rotate Q and K in place, then put K and V into the cache of one layer.
 *
 * qkv [rows, heads + 2 * kv_heads, head_dim]: pairs that turn together lie side by side;
 * rotation, qk_norm and writes as above; cache [slots, 2, kv_heads, head_dim]
 */
void rotate_and_write(
    float *qkv, const float *rotation, const float *qk_norm, float eps, float *cache, const long *writes,
    size_t rows, size_t heads, size_t kv_heads, size_t head_dim);

/* Attention of rows with one query each, straight from the blocks of one layer's cache.
 *
 * queries [rows, heads, head_dim], the next row `query_stride` numbers further on; head_dim up to 512
 * slots and lengths as above; scores [rows, heads, longest, rounded up to 8]: room to work in
 * output  [rows, heads, head_dim]
 */
void attend_decode(
    const float *queries, const float *cache, const long *slots, const long *lengths, float *scores,
    float *output, size_t rows, size_t heads, size_t kv_heads, size_t head_dim, size_t longest,
    size_t query_stride, float scaling);

/* All layers of a step: hidden [rows, hidden_size], in place; `room` holds `forward_room` numbers. */
void forward(const struct model *model, const struct step *step, float *hidden, float *room);
size_t forward_room(const struct model *model, const struct step *step);
