/* Walsh-Hadamard transform of independent blocks of 128, scaled by 1/sqrt(128) (campaign section 5.1). */
#pragma once
#include "abi.h"
#include "half.h"

namespace {

constexpr int BLOCK = 128;
constexpr float BLOCK_SCALE = 0.08838834764831845f;

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX2__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t lane_indices __attribute__((vector_size(4 * LANES)));

/* In place on 128 floats, unscaled. */
inline void hadamard_block(float* values) {
  constexpr int VECTORS = BLOCK / LANES;
  lanes v[VECTORS];
  for (int i = 0; i < VECTORS; ++i) v[i] = *(const lanes*)(values + i * LANES);
  for (int step = 1; step < VECTORS; step *= 2)
#pragma GCC unroll 32
    for (int i = 0; i < VECTORS; ++i)
      if (!(i & step)) {
        const lanes a = v[i], b = v[i + step];
        v[i] = a + b;
        v[i + step] = a - b;
      }
#pragma GCC unroll 4
  for (int step = 1; step < LANES; step *= 2) {
    lane_indices partner;
    lanes sign;
    for (int lane = 0; lane < LANES; ++lane) {
      partner[lane] = lane ^ step;
      sign[lane] = lane & step ? -1.0f : 1.0f;
    }
#pragma GCC unroll 32
    for (int i = 0; i < VECTORS; ++i) v[i] = __builtin_shuffle(v[i], partner) + v[i] * sign;
  }
  for (int i = 0; i < VECTORS; ++i) *(lanes*)(values + i * LANES) = v[i];
}

/* Input side of a matrix, one block: out = hadamard(x * suh). suh is half. */
inline void transform_input(const float* x, const uint16_t* suh, float* out) {
  alignas(64) float scale[BLOCK];
  floats_of_halves(suh, scale, BLOCK);
  for (int i = 0; i < BLOCK; ++i) out[i] = x[i] * (scale[i] * BLOCK_SCALE);
  hadamard_block(out);
}

/* Output side, one block, in place: y = hadamard(y) * svh. */
inline void transform_output(float* y, const uint16_t* svh) {
  alignas(64) float scale[BLOCK];
  floats_of_halves(svh, scale, BLOCK);
  hadamard_block(y);
  for (int i = 0; i < BLOCK; ++i) y[i] = y[i] * (scale[i] * BLOCK_SCALE);
}

}  // namespace
