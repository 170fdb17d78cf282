// EXL3 on the GPU: from the words of a tile to the A fragments of mma.m16n8k16.
//
// A tile is 16 inputs x 16 outputs; a warp decodes four of them at once, stacked along the inputs (a "quad", 64 inputs).
// Lane (g = lane / 4, t = lane % 4) takes tile t and of it the K words that hold columns g and g + 8: 32 weights in
// stream order. Position 8 j + 4 c + e is input 2 j + {0, 1, 8, 9}[e] of column g + 8 c. Weights are the A operand
// (16 columns x inputs), rows of x the B operand: one instruction serves up to eight rows.
//
// Each weight is a register of its own, as both halves of a pair of neighbouring k, so nothing is ever packed:
//   paired     the two halves of the product, against (x, x): their sum is left to the accumulation
//   canonical  their half sum twice, against (x, 0): the weight that the reference has, bit by bit
// A quad is therefore eight instructions, each over 16 "k" = 8 inputs twice.
#pragma once
#include <cuda_fp16.h>

#include "ptx.cuh"

namespace carve {

enum class Codebook { standard = 0, mcg = 1, mul1 = 2 };

// Powers of two that the compiler cannot see: a left shift is then a multiplication on the otherwise idle FMA pipe, where
// shifts, byte permutes and logic share the half-rate ALU pipe, which is the floor of decoding.
__constant__ uint32_t powers[16] = {1u << 0, 1u << 1, 1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,
                                    1u << 8, 1u << 9, 1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15};

#ifndef CARVE_SHIFT_MULTIPLIES
#define CARVE_SHIFT_MULTIPLIES 1
#endif

template <int S>
__device__ __forceinline__ uint32_t shift_left(uint32_t value) {
  if constexpr (S == 0) return value;
#if CARVE_SHIFT_MULTIPLIES
  return value * powers[S];
#else
  return value << S;
#endif
}

// K words of a lane and, first, the word before them in the tile's ring.
template <int K>
struct LaneWords {
  uint32_t word[K + 1];
};

// The 16-bit state of weight I (0..31): the 16 bits that end with its own K bits, most significant bit first.
template <int K, int I>
__device__ __forceinline__ uint32_t state(const LaneWords<K>& lane) {
  constexpr int start = 32 + (I + 1) * K - 16, first = start / 32, bit = start % 32;
  // A window that leaves its word lies in the word that starts 16 bits later, which other windows use as well.
  const uint32_t word = bit <= 16 ? lane.word[first] : __funnelshift_l(lane.word[bit <= 16 ? first : first + 1], lane.word[first], 16);
  constexpr int offset = bit <= 16 ? bit : bit - 16;  // from the top, 0..16
  const uint32_t aligned = shift_left<offset % 8>(word);
  constexpr int selector = offset / 8 == 0 ? 0x4432 : offset / 8 == 1 ? 0x4421 : 0x4410;
  return __byte_perm(aligned, 0, selector);
}

// The pair of halves of a state; for mul1, which has no pair, the weight twice.
template <Codebook BOOK>
__device__ __forceinline__ uint32_t pair(uint32_t state) {
  if constexpr (BOOK == Codebook::mul1) {
    const uint32_t sum = __dp4a(state * 0x83DCD12Du, 0x01010101u, 0x6400u);
    const __half2 value = __hfma2(__half2half2(__ushort_as_half(static_cast<unsigned short>(sum))),
                                  __half2half2(__ushort_as_half(0x1EEE)), __half2half2(__ushort_as_half(0xC931)));
    return *reinterpret_cast<const uint32_t*>(&value);
  } else {
    const uint32_t product = BOOK == Codebook::mcg ? state * 0xCBAC1FEDu : state * 89226354u + 64248484u;
    return pair_of_product(product);
  }
}

// The weight of a state as it goes into an A fragment.
template <Codebook BOOK, bool PAIRED>
__device__ __forceinline__ uint32_t weight(uint32_t state) {
  const uint32_t halves = pair<BOOK>(state);
  if constexpr (PAIRED || BOOK == Codebook::mul1) {
    return halves;
  } else {
    const __half2 both = *reinterpret_cast<const __half2*>(&halves);
    const __half2 sum = __hadd2(__low2half2(both), __high2half2(both));
    return *reinterpret_cast<const uint32_t*>(&sum);
  }
}

// A value of x as it goes into a B fragment: what a weight's register is multiplied by.
template <Codebook BOOK, bool PAIRED>
__device__ __forceinline__ uint32_t operand(float value) {
  const uint32_t half = __half_as_ushort(__float2half_rn(value));
  return PAIRED && BOOK != Codebook::mul1 ? half * 0x10001u : half;
}

}  // namespace carve
