/* Attention of a decode step. */
#include "vector.h"

#define MOST_VECTORS 64 /* a head may have 512 numbers */

INLINE float dot(const float *a, const float *b, size_t size) {
    vec sums = spread(0);
    size_t i = 0;
    for (; i + LANES <= size; i += LANES) sums += load(a + i) * load(b + i);
    float sum = sum_of(sums);
    for (; i < size; i++) sum += a[i] * b[i];
    return sum;
}

/* Scores become shares that add up to 1. There is room for whole vectors. */
INLINE void softmax(float *scores, size_t length) {
    while (length % LANES) scores[length++] = -FLT_MAX;
    float largest = -FLT_MAX;
    for (size_t t = 0; t < length; t++) largest = scores[t] > largest ? scores[t] : largest;
    vec sums = spread(0);
    for (size_t t = 0; t < length; t += LANES) {
        const vec share = exp_of(load(scores + t) - largest);
        store(scores + t, share);
        sums += share;
    }
    const float factor = 1 / sum_of(sums);
    for (size_t t = 0; t < length; t += LANES) store(scores + t, load(scores + t) * factor);
}

/* One head of one row: its query, and the K and V of the slots it looks at. */
INLINE void attend(
    const float *query, const float *keys, const float *values, size_t slot_size, const long *slots,
    size_t length, float scaling, float *scores, float *output, size_t head_dim) {
    for (size_t t = 0; t < length; t++)
        scores[t] = scaling * dot(query, keys + (size_t)slots[t] * slot_size, head_dim);
    softmax(scores, length);
    const size_t vectors = head_dim / LANES;
    vec sums[MOST_VECTORS];
    for (size_t v = 0; v < vectors; v++) sums[v] = spread(0);
    for (size_t t = 0; t < length; t++) {
        const float *value = values + (size_t)slots[t] * slot_size;
        for (size_t v = 0; v < vectors; v++) sums[v] += scores[t] * load(value + v * LANES);
    }
    for (size_t v = 0; v < vectors; v++) store(output + v * LANES, sums[v]);
    for (size_t i = vectors * LANES; i < head_dim; i++) {
        output[i] = 0;
        for (size_t t = 0; t < length; t++) output[i] += scores[t] * values[(size_t)slots[t] * slot_size + i];
    }
}

void attend_decode(
    const float *queries, const float *cache, const long *slots, const long *lengths, float *scores,
    float *output, size_t rows, size_t heads, size_t kv_heads, size_t head_dim, size_t longest,
    size_t query_stride, float scaling) {
    const size_t kv_size = kv_heads * head_dim, room = (longest + LANES - 1) / LANES * LANES;
#pragma omp parallel for collapse(2) schedule(static)
    for (size_t row = 0; row < rows; row++) {
        for (size_t head = 0; head < heads; head++) {
            const float *query = queries + row * query_stride + head * head_dim;
            const float *keys = cache + head / (heads / kv_heads) * head_dim, *values = keys + kv_size;
            const long *own = slots + row * longest;
            const size_t length = (size_t)lengths[row];
            float *score = scores + (row * heads + head) * room;
            float *out = output + (row * heads + head) * head_dim;
            switch (head_dim) { /* with the number known to the compiler, the sums stay in registers */
                case 64: attend(query, keys, values, 2 * kv_size, own, length, scaling, score, out, 64); break;
                case 128: attend(query, keys, values, 2 * kv_size, own, length, scaling, score, out, 128); break;
                default: attend(query, keys, values, 2 * kv_size, own, length, scaling, score, out, head_dim);
            }
        }
    }
}
