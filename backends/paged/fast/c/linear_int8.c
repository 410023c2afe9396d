/* The same products with weights of 8 bits: a quarter of the bytes.
 *
 * Inputs become whole numbers of up to 16 bits, so that one instruction multiplies 16 of them and adds
 * them up in pairs. AVX2 has one for 8 bits too, but it takes the second factor below 64 or overflows.
 */
#include "finish.h"

#define ROWS 6           /* rows at once: 6 x 2 sums, 2 weights, an input and a product */
#define LINE 4           /* inputs whose 4 x 16 weights are one line of the cache */
#define LARGEST_BYTE 127 /* of a weight */

/* Inputs of a row, filled up with zeros to whole lines. */
static size_t filled(size_t inputs) { return (inputs + LINE - 1) / LINE * LINE; }

/* x[k] = scale * whole[k], as nearly as sums over all inputs in 32 bits allow. */
static void quantize_row(const float *x, size_t inputs, int16_t *whole, float *scale) {
    const size_t fits = INT32_MAX / LARGEST_BYTE / inputs, most = fits < INT16_MAX ? fits : INT16_MAX;
    float largest = 0;
    for (size_t k = 0; k < inputs; k++) {
        const float size = x[k] < 0 ? -x[k] : x[k];
        largest = size > largest ? size : largest;
    }
    *scale = largest > 0 ? largest / (float)most : 1;
    const float steps = 1 / *scale;
    for (size_t k = 0; k < inputs; k++) {
        const float value = x[k] * steps;
        whole[k] = (int16_t)(int)(value + (value < 0 ? -0.5f : 0.5f));
    }
    for (size_t k = inputs; k < filled(inputs); k++) whole[k] = 0;
}

/* Eight weights' pairs as 16 bits. */
INLINE __m256i widen(const int8_t *w) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)w)); }

/* sums[m][0:16] = sum over k of x[m][k] * w[k][0:16], for `rows` rows; w [pairs of inputs][16][2]. */
INLINE void tile(int rows, const int16_t *x, size_t inputs, const int8_t *w, int32_t *result) {
    __m256i sums[ROWS][2];
    for (int m = 0; m < rows; m++) sums[m][0] = sums[m][1] = _mm256_setzero_si256();
    const int8_t *next_panel = w + inputs * PANEL;
    for (size_t k = 0; k < inputs; k += 2) {
        const __m256i left = widen(w + k * PANEL), right = widen(w + k * PANEL + PANEL);
        __builtin_prefetch(next_panel + k * PANEL, 0, 2);
        for (int m = 0; m < rows; m++) {
            int32_t two;
            memcpy(&two, x + m * inputs + k, sizeof two);
            const __m256i input = _mm256_set1_epi32(two);
            sums[m][0] = _mm256_add_epi32(sums[m][0], _mm256_madd_epi16(input, left));
            sums[m][1] = _mm256_add_epi32(sums[m][1], _mm256_madd_epi16(input, right));
        }
    }
    for (int m = 0; m < rows; m++)
        for (int half = 0; half < 2; half++)
            _mm256_storeu_si256((__m256i *)(result + m * PANEL + half * LANES), sums[m][half]);
}

static void tile_of(int rows, const int16_t *x, size_t inputs, const int8_t *w, int32_t *result) {
    switch (rows) {
        case 1: tile(1, x, inputs, w, result); break;
        case 2: tile(2, x, inputs, w, result); break;
        case 3: tile(3, x, inputs, w, result); break;
        case 4: tile(4, x, inputs, w, result); break;
        case 5: tile(5, x, inputs, w, result); break;
        default: tile(6, x, inputs, w, result);
    }
}

size_t multiply_room(const struct weight *weight, size_t rows) {
    return weight->numbers ? 0 : rows * (1 + filled(weight->inputs) / 2);
}

/* Of one panel: the rows from `row` up to `end`, rounded to `whole` with a scale each. */
static void panel_of(
    const struct weight *weight, size_t panel, const int16_t *whole, const float *row_scales,
    const float *residual, float *y, size_t row, size_t end) {
    const size_t inputs = filled(weight->inputs), begin = panel * PANEL;
    for (size_t tiles = (end - row + ROWS - 1) / ROWS; tiles > 0; tiles--) {
        const size_t taken = (end - row + tiles - 1) / tiles;
        int32_t sums[ROWS][PANEL];
        tile_of((int)taken, whole + row * inputs, inputs, weight->bytes + begin * inputs, sums[0]);
        for (size_t m = 0; m < taken; m++) {
            float products[PANEL];
            for (size_t n = 0; n < PANEL; n++) {
                products[n] = (float)sums[m][n] * row_scales[row + m] * weight->scales[begin + n];
                if (weight->bias) products[n] += weight->bias[begin + n];
            }
            finish(weight, products, residual, y, row + m, panel);
        }
        row += taken;
    }
}

/* Each row of inputs is rounded by itself, so no row's result depends on the rows beside it. */
void multiply_int8(
    const struct weight *weight, const float *x, const float *residual, float *y, size_t rows, float *room) {
    const size_t inputs = filled(weight->inputs), panels = panels_of(weight);
    float *row_scales = room;
    int16_t *whole = (int16_t *)(room + rows);
    const size_t nearby = rows_nearby(inputs * sizeof *whole, ROWS);
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (size_t row = 0; row < rows; row++)
            quantize_row(x + row * weight->inputs, weight->inputs, whole + row * inputs, row_scales + row);
        for (size_t row = 0; row < rows; row += nearby) {
#pragma omp for schedule(static) nowait
            for (size_t panel = 0; panel < panels; panel++)
                panel_of(weight, panel, whole, row_scales, residual, y, row, smaller(row + nearby, rows));
        }
    }
}
