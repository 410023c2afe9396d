/* The two products that a decode step spends its time in, for processors with 256-bit vectors.
 *
 * Compiled by `compiled.py` on the machine that runs it. Everything is float32 and row-major.
 * Vectors are GCC's and Clang's own (`vector_size`), so there are no intrinsics to read.
 */
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

typedef float vec __attribute__((vector_size(32), aligned(4)));
#define LANES 8
#define PANEL 16 /* outputs side by side: two vectors; `compiled.py` lays the weights so */
#define ROWS 6   /* rows at once: 6 x 2 sums, 2 weights and an input fill the 16 registers */

static inline vec spread(float value) {
    return (vec){value, value, value, value, value, value, value, value};
}

/* y[m][0:16] = bias[0:16] + sum over k of x[m][k] * w[k][0:16], for `rows` rows.
 *
 * Each weight that was read is used for all rows while it is in a register. While one panel is
 * multiplied the next is asked for, so memory and arithmetic work at the same time.
 */
static inline __attribute__((always_inline)) void tile(
    int rows, const float *x, size_t x_stride, const float *w, size_t inputs,
    const float *bias, float *y, size_t y_stride) {
    vec sums[ROWS][2];
    for (int m = 0; m < rows; m++)
        for (int half = 0; half < 2; half++)
            sums[m][half] = bias ? *(const vec *)(bias + half * LANES) : spread(0);
    const float *next_panel = w + inputs * PANEL;
    for (size_t k = 0; k < inputs; k++) {
        const vec left = *(const vec *)(w + k * PANEL), right = *(const vec *)(w + k * PANEL + LANES);
        __builtin_prefetch(next_panel + k * PANEL, 0, 2);
        for (int m = 0; m < rows; m++) {
            const vec input = spread(x[m * x_stride + k]);
            sums[m][0] += input * left;
            sums[m][1] += input * right;
        }
    }
    for (int m = 0; m < rows; m++)
        for (int half = 0; half < 2; half++)
            *(vec *)(y + m * y_stride + half * LANES) = sums[m][half];
}

/* `tile` with the number of rows known to the compiler, which then keeps the sums in registers. */
static void tile_of(
    int rows, const float *x, size_t x_stride, const float *w, size_t inputs,
    const float *bias, float *y, size_t y_stride) {
    switch (rows) {
        case 1: tile(1, x, x_stride, w, inputs, bias, y, y_stride); break;
        case 2: tile(2, x, x_stride, w, inputs, bias, y, y_stride); break;
        case 3: tile(3, x, x_stride, w, inputs, bias, y, y_stride); break;
        case 4: tile(4, x, x_stride, w, inputs, bias, y, y_stride); break;
        case 5: tile(5, x, x_stride, w, inputs, bias, y, y_stride); break;
        default: tile(6, x, x_stride, w, inputs, bias, y, y_stride);
    }
}

/* y = x W^T (+ bias) (+ residual)
 *
 * x [rows, inputs], y and residual [rows, outputs]; bias and residual may be null.
 * w [panels][inputs][16]: outputs in panels of 16, bias and the last panel filled up with zeros.
 */
void linear(
    const float *x, const float *w, const float *bias, const float *residual, float *y,
    size_t rows, size_t inputs, size_t outputs) {
    const size_t panels = (outputs + PANEL - 1) / PANEL;
#pragma omp parallel for schedule(static)
    for (size_t panel = 0; panel < panels; panel++) {
        const size_t first = panel * PANEL, width = outputs - first < PANEL ? outputs - first : PANEL;
        size_t row = 0;
        for (size_t tiles = (rows + ROWS - 1) / ROWS; tiles > 0; tiles--) {
            const size_t taken = (rows - row + tiles - 1) / tiles; /* evenly: 16 rows are 6, 5, 5 */
            float result[ROWS][PANEL];
            tile_of(
                (int)taken, x + row * inputs, inputs, w + first * inputs, inputs,
                bias ? bias + first : NULL, result[0], PANEL);
            for (size_t m = 0; m < taken; m++) {
                float *target = y + (row + m) * outputs + first;
                if (residual)
                    for (size_t n = 0; n < width; n++)
                        result[m][n] += residual[(row + m) * outputs + first + n];
                memcpy(target, result[m], width * sizeof(float));
            }
            row += taken;
        }
    }
}

static inline float dot(const float *a, const float *b, size_t size) {
    float sum = 0;
    for (size_t i = 0; i < size; i++) sum += a[i] * b[i];
    return sum;
}

/* Attention of rows with one query each, straight from the blocks of the KV cache.
 *
 * queries [rows, heads, head_dim], the next row `query_stride` numbers further on
 * cache   [slots, 2, kv_heads, head_dim]: K, then V
 * slots   [rows, longest]: where the tokens of each row lie; a row looks at its first `lengths[row]`
 * scores  [rows, heads, longest]: room to work in
 * output  [rows, heads, head_dim]
 */
void attend_decode(
    const float *queries, const float *cache, const long *slots, const long *lengths, float *scores,
    float *output, size_t rows, size_t heads, size_t kv_heads, size_t head_dim, size_t longest,
    size_t query_stride, float scaling) {
    const size_t slot_size = 2 * kv_heads * head_dim, group = heads / kv_heads;
#pragma omp parallel for collapse(2) schedule(static)
    for (size_t row = 0; row < rows; row++) {
        for (size_t kv_head = 0; kv_head < kv_heads; kv_head++) {
            const long *own = slots + row * longest;
            const size_t length = (size_t)lengths[row], first_head = kv_head * group;
            float *score = scores + (row * heads + first_head) * longest;
            const float *query = queries + row * query_stride + first_head * head_dim;
            float *out = output + (row * heads + first_head) * head_dim;
            for (size_t t = 0; t < length; t++) {
                const float *key = cache + (size_t)own[t] * slot_size + kv_head * head_dim;
                for (size_t h = 0; h < group; h++)
                    score[h * longest + t] = scaling * dot(query + h * head_dim, key, head_dim);
            }
            for (size_t h = 0; h < group; h++) { /* softmax */
                float *s = score + h * longest, largest = -FLT_MAX, sum = 0;
                for (size_t t = 0; t < length; t++) largest = s[t] > largest ? s[t] : largest;
                for (size_t t = 0; t < length; t++) s[t] = expf(s[t] - largest);
                for (size_t t = 0; t < length; t++) sum += s[t];
                for (size_t t = 0; t < length; t++) s[t] /= sum;
            }
            memset(out, 0, group * head_dim * sizeof(float));
            for (size_t t = 0; t < length; t++) {
                const float *value = cache + (size_t)own[t] * slot_size + (kv_heads + kv_head) * head_dim;
                for (size_t h = 0; h < group; h++)
                    for (size_t d = 0; d < head_dim; d++)
                        out[h * head_dim + d] += score[h * longest + t] * value[d];
            }
        }
    }
}
