/* Eight float32 at a time, for processors with AVX2. */
#pragma once

#include <float.h>
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels.h"

typedef float vec __attribute__((vector_size(32), aligned(4)));
typedef int32_t ints __attribute__((vector_size(32)));
#define LANES 8

#define INLINE static inline __attribute__((always_inline))

INLINE vec spread(float value) {
    return (vec){value, value, value, value, value, value, value, value};
}

INLINE vec load(const float *from) { return *(const vec *)from; }

INLINE void store(float *to, vec value) { *(vec *)to = value; }

INLINE float sum_of(vec x) {
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

/* e^x to 3e-7 of its size, for x from -87 to 87: about all that float32 holds in full.
 *
 * e^x = 2^whole * e^rest: the whole part goes into the exponent, the rest lies within ln 2 / 2.
 */
INLINE vec exp_of(vec x) {
    x = _mm256_max_ps(_mm256_min_ps(x, spread(87)), spread(-87));
    const vec whole = _mm256_round_ps(x * 1.44269504f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const vec rest = x - whole * 0.693359375f - whole * -2.12194440e-4f; /* ln 2, in two parts */
    vec power = rest * (1.0f / 720) + 1.0f / 120;
    power = power * rest + 1.0f / 24;
    power = power * rest + 1.0f / 6;
    power = power * rest + 0.5f;
    power = power * rest + 1.0f;
    power = power * rest + 1.0f;
    return power * (vec)((__builtin_convertvector(whole, ints) + 127) << 23);
}

/* x * sigmoid(x) */
INLINE vec silu(vec x) { return x / (1 + exp_of(-x)); }

/* Rows whose inputs stay in the core's own cache while all panels of a weight pass by. */
INLINE size_t rows_nearby(size_t bytes_of_a_row, size_t rows_of_a_tile) {
    const size_t rows = 192 * 1024 / bytes_of_a_row / rows_of_a_tile * rows_of_a_tile;
    return rows > 0 ? rows : rows_of_a_tile;
}

INLINE size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
