/* The end of a product. */
#pragma once

#include "vector.h"

/* Outputs that come of one panel. */
INLINE size_t outputs_of_a_panel(const struct weight *weight) { return weight->gated ? PANEL / 2 : PANEL; }

INLINE size_t panels_of(const struct weight *weight) {
    return (weight->outputs + outputs_of_a_panel(weight) - 1) / outputs_of_a_panel(weight);
}

/* One row of a panel's sums becomes its part of y[row].
 *
 * Gated, the panel holds eight gates and their eight values, and silu(gates) * values comes of them.
 */
INLINE void finish(
    const struct weight *weight, float *sums, const float *residual, float *y, size_t row, size_t panel) {
    if (weight->gated) store(sums, silu(load(sums)) * load(sums + LANES));
    const size_t first = panel * outputs_of_a_panel(weight), target = row * weight->outputs + first;
    const size_t width = smaller(outputs_of_a_panel(weight), weight->outputs - first);
    if (residual)
        for (size_t n = 0; n < width; n++) sums[n] += residual[target + n];
    memcpy(y + target, sums, width * sizeof(float));
}
