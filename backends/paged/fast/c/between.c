/* What lies between the products of a layer. */
#include <math.h>

#include "vector.h"

/* y = x / rms(x) * weight, over `size` numbers */
INLINE void norm(const float *x, const float *weight, float eps, float *y, size_t size) {
    float squares = 0;
    for (size_t i = 0; i < size; i++) squares += x[i] * x[i];
    const float factor = 1 / sqrtf(squares / (float)size + eps);
    for (size_t i = 0; i < size; i++) y[i] = x[i] * factor * weight[i];
}

void rms_norm(const float *x, const float *weight, float eps, float *y, size_t rows, size_t size) {
#pragma omp parallel for schedule(static) if (rows > 1)
    for (size_t row = 0; row < rows; row++) norm(x + row * size, weight, eps, y + row * size, size);
}

void rotate_and_write(
    float *qkv, const float *rotation, const float *qk_norm, float eps, float *cache, const long *writes,
    size_t rows, size_t heads, size_t kv_heads, size_t head_dim) {
    const size_t rotated = heads + kv_heads, kv_size = 2 * kv_heads * head_dim;
#pragma omp parallel for schedule(static) if (rows > 1)
    for (size_t row = 0; row < rows; row++) {
        float *own = qkv + row * (rotated + kv_heads) * head_dim;
        const float *turn = rotation + row * head_dim;
        for (size_t head = 0; head < rotated; head++) {
            float *x = own + head * head_dim;
            if (qk_norm) norm(x, qk_norm + head * head_dim, eps, x, head_dim);
            for (size_t i = 0; i < head_dim; i += 2) {
                const float real = x[i] * turn[i] - x[i + 1] * turn[i + 1];
                x[i + 1] = x[i] * turn[i + 1] + x[i + 1] * turn[i];
                x[i] = real;
            }
        }
        memcpy(cache + (size_t)writes[row] * kv_size, own + heads * head_dim, kv_size * sizeof(float));
    }
}
