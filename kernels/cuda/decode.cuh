// What a desk compares bit by bit: the operands that a tile's weights are multiplied as, by the functions of the kernels.
#pragma once
#include "stream.cuh"

namespace carve {

struct DecodeCall {
  const uint8_t* trellis;  // four tiles stacked along the inputs, 32 * K bytes each
  uint32_t* out;           // [tile][lane / 4][weight in stream order (exl3.cuh)]
};

template <int K, Codebook BOOK, bool PAIRED>
__global__ void decode_quad(const __grid_constant__ DecodeCall call) {
  CARVE_SHARED(memory);
  const int lane = threadIdx.x, group = lane / 4, tile = lane % 4;
  for (int at = lane * 4; at < 4 * 32 * K; at += 32 * 4)
    *reinterpret_cast<uint32_t*>(memory + at) = *reinterpret_cast<const uint32_t*>(call.trellis + at);
  __syncwarp();
  const LaneWords<K> words = words_of_tile<K>(shared_address(memory) + tile * 32 * K, group);
  uint32_t a[4][8];
  using One = Quad<K, 1, 1, BOOK, PAIRED>;
  One::template decode<0>(a[0], words), One::template decode<1>(a[1], words);
  One::template decode<2>(a[2], words), One::template decode<3>(a[3], words);
#pragma unroll
  for (int i = 0; i < 32; i++) call.out[(tile * 8 + group) * 32 + i] = a[i / 8][i % 8];
}

}  // namespace carve
