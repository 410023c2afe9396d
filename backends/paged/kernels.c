/* What a decode step spends its time in, for processors with AVX2.
 *
 * Compiled by `compiled.py` on the machine that runs it. Tensors are row-major, and float32 but for the
 * weights of `linear_int8`.
 */
#include <float.h>
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
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

#define INT8_ROWS 5 /* rows at once: 5 x 2 sums, 2 weights, an input and what lies between */
#define GROUP 4     /* inputs whose products are added up by one instruction */

/* x[k] = scale * (bytes[k] - zero), as nearly as 256 steps from the row's least to its largest allow. */
static void quantize_row(const float *x, size_t inputs, uint8_t *bytes, float *scale, float *zero) {
    float least = 0, largest = 0;
    for (size_t k = 0; k < inputs; k++) {
        least = x[k] < least ? x[k] : least;
        largest = x[k] > largest ? x[k] : largest;
    }
    *scale = largest > least ? (largest - least) / 255 : 1;
    const float steps = 1 / *scale;
    *zero = (float)(int)(0.5f - least * steps);
    for (size_t k = 0; k < inputs; k++) {
        const float value = x[k] * steps + *zero + 0.5f; /* not below 0, so cutting off rounds */
        bytes[k] = (uint8_t)(int)(value < 255 ? value : 255);
    }
}

/* sums[m][0:16] = sum over k of bytes[m][k] * w[k][0:16], for `rows` rows; w [groups][16][4].
 *
 * Two products of a byte and a weight are added in 16 bits: weights up to 64 keep that from overflowing.
 */
static inline __attribute__((always_inline)) void tile_int8(
    int rows, const uint8_t *bytes, size_t groups, const int8_t *w, int32_t *result) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sums[INT8_ROWS][2];
    for (int m = 0; m < rows; m++) sums[m][0] = sums[m][1] = _mm256_setzero_si256();
    const int8_t *next_panel = w + groups * GROUP * PANEL;
    for (size_t g = 0; g < groups; g++) {
        const __m256i left = _mm256_loadu_si256((const __m256i *)(w + g * GROUP * PANEL));
        const __m256i right = _mm256_loadu_si256((const __m256i *)(w + g * GROUP * PANEL + 32));
        __builtin_prefetch(next_panel + g * GROUP * PANEL, 0, 2);
        for (int m = 0; m < rows; m++) {
            int32_t four;
            memcpy(&four, bytes + (m * groups + g) * GROUP, sizeof four);
            const __m256i input = _mm256_set1_epi32(four);
            const __m256i a = _mm256_madd_epi16(_mm256_maddubs_epi16(input, left), ones);
            const __m256i b = _mm256_madd_epi16(_mm256_maddubs_epi16(input, right), ones);
            sums[m][0] = _mm256_add_epi32(sums[m][0], a);
            sums[m][1] = _mm256_add_epi32(sums[m][1], b);
        }
    }
    for (int m = 0; m < rows; m++)
        for (int half = 0; half < 2; half++)
            _mm256_storeu_si256((__m256i *)(result + m * PANEL + half * LANES), sums[m][half]);
}

static void tile_int8_of(int rows, const uint8_t *bytes, size_t groups, const int8_t *w, int32_t *result) {
    switch (rows) {
        case 1: tile_int8(1, bytes, groups, w, result); break;
        case 2: tile_int8(2, bytes, groups, w, result); break;
        case 3: tile_int8(3, bytes, groups, w, result); break;
        case 4: tile_int8(4, bytes, groups, w, result); break;
        default: tile_int8(5, bytes, groups, w, result);
    }
}

/* As `linear`, with weights of 8 bits and a scale for each output; inputs become 8 bits row by row.
 *
 * w [panels][groups][16][4], the last group and panel filled up with zeros; scales, weight_sums (of each
 * output's weights) and bias are as long as the panels together. bytes [rows, groups * 4]: room to work in.
 */
void linear_int8(
    const float *x, const int8_t *w, const float *scales, const float *weight_sums, const float *bias,
    const float *residual, uint8_t *bytes, float *row_scales, float *y, size_t rows, size_t inputs,
    size_t outputs) {
    const size_t panels = (outputs + PANEL - 1) / PANEL, groups = (inputs + GROUP - 1) / GROUP;
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (size_t row = 0; row < rows; row++)
            quantize_row(
                x + row * inputs, inputs, bytes + row * groups * GROUP, row_scales + 2 * row,
                row_scales + 2 * row + 1);
#pragma omp for schedule(static)
        for (size_t panel = 0; panel < panels; panel++) {
            const size_t first = panel * PANEL, width = outputs - first < PANEL ? outputs - first : PANEL;
            size_t row = 0;
            for (size_t tiles = (rows + INT8_ROWS - 1) / INT8_ROWS; tiles > 0; tiles--) {
                const size_t taken = (rows - row + tiles - 1) / tiles;
                int32_t sums[INT8_ROWS][PANEL];
                tile_int8_of(
                    (int)taken, bytes + row * groups * GROUP, groups, w + first * groups * GROUP, sums[0]);
                for (size_t m = 0; m < taken; m++) {
                    const float scale = row_scales[2 * (row + m)], zero = row_scales[2 * (row + m) + 1];
                    float *target = y + (row + m) * outputs + first;
                    for (size_t n = 0; n < width; n++) {
                        const float product = (float)sums[m][n] - zero * weight_sums[first + n];
                        target[n] = product * scale * scales[first + n] + (bias ? bias[first + n] : 0);
                        if (residual) target[n] += residual[(row + m) * outputs + first + n];
                    }
                }
                row += taken;
            }
        }
    }
}

/* e^x for x up to 0, to 3e-7 of its size. The library's is as exact, but computes one at a time.
 *
 * e^x = 2^whole * e^rest: the whole part goes into the exponent, the rest lies within ln 2 / 2.
 */
static inline float exp_of(float x) {
    x = x < -87 ? -87 : x; /* e^-87 is the least that float32 holds in full */
    const int whole = (int)(x * 1.44269504f - 0.5f);
    const float rest = x - (float)whole * 0.693359375f - (float)whole * -2.12194440e-4f; /* ln 2, in two parts */
    float power = 1.0f / 720;
    power = power * rest + 1.0f / 120;
    power = power * rest + 1.0f / 24;
    power = power * rest + 1.0f / 6;
    power = power * rest + 0.5f;
    power = power * rest + 1.0f;
    power = power * rest + 1.0f;
    const union { int bits; float value; } scale = {(whole + 127) << 23};
    return power * scale.value;
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
                for (size_t t = 0; t < length; t++) s[t] = exp_of(s[t] - largest);
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
