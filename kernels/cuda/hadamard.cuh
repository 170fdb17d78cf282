// The Hadamard transform of a block of 128 by one warp: lane l holds elements 4 l .. 4 l + 3, before and after.
#pragma once
#include <stdint.h>

namespace carve {

__device__ __forceinline__ void hadamard128(float (&value)[4]) {
  constexpr float scale = 0.08838834764831845f;  // 1 / sqrt(128)
  const float a = value[0] + value[1], b = value[0] - value[1], c = value[2] + value[3], d = value[2] - value[3];
  value[0] = (a + c) * scale;
  value[1] = (b + d) * scale;
  value[2] = (a - c) * scale;
  value[3] = (b - d) * scale;
#pragma unroll
  for (int stride = 1; stride < 32; stride *= 2) {
    const float sign = threadIdx.x & stride ? -1.0f : 1.0f;
#pragma unroll
    for (float& each : value) each = fmaf(sign, each, __shfl_xor_sync(0xffffffffu, each, stride));
  }
}

}  // namespace carve
