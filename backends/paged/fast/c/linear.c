/* Products in float32: as fast as memory and arithmetic allow for few rows. */
#include "finish.h"

#define ROWS 6 /* rows at once: 6 x 2 sums, 2 weights and an input fill the 16 registers */

/* y[m][0:16] = bias[0:16] + sum over k of x[m][k] * w[k][0:16], for `rows` rows.
 *
 * Each weight that was read is used for all rows while it is in a register. While one panel is
 * multiplied the next is asked for, so memory and arithmetic work at the same time.
 */
INLINE void tile(
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

/* Of one panel: the rows from `row` up to `end`. */
static void panel_of(
    const struct weight *weight, size_t panel, const float *x, const float *residual, float *y, size_t row,
    size_t end) {
    const size_t inputs = weight->inputs;
    for (size_t tiles = (end - row + ROWS - 1) / ROWS; tiles > 0; tiles--) {
        const size_t taken = (end - row + tiles - 1) / tiles; /* evenly: 16 rows are 6, 5, 5 */
        float sums[ROWS][PANEL];
        tile_of(
            (int)taken, x + row * inputs, inputs, weight->numbers + panel * PANEL * inputs, inputs,
            weight->bias ? weight->bias + panel * PANEL : NULL, sums[0], PANEL);
        for (size_t m = 0; m < taken; m++) finish(weight, sums[m], residual, y, row + m, panel);
        row += taken;
    }
}

void multiply_float(const struct weight *weight, const float *x, const float *residual, float *y, size_t rows) {
    const size_t nearby = rows_nearby(weight->inputs * sizeof *x, ROWS), panels = panels_of(weight);
#pragma omp parallel
    for (size_t row = 0; row < rows; row += nearby) {
#pragma omp for schedule(static) nowait
        for (size_t panel = 0; panel < panels; panel++)
            panel_of(weight, panel, x, residual, y, row, smaller(row + nearby, rows));
    }
}
