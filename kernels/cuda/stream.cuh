// The bytes of a trellis on their way to a warp: a private ring of shared memory, filled by asynchronous copies.
//
// An item is a quad (four tiles stacked along the inputs) of TILES neighbouring columns of tiles. No other warp reads
// it, so the ring needs no barrier; a warp runs DEPTH - 1 items ahead of its own multiplications.
#pragma once
#include <stdint.h>

#include "exl3.cuh"

namespace carve {

// Bytes of a tile in the ring: odd multiples of 32 let the lanes of a warp read their words without bank conflicts.
__host__ __device__ constexpr int ring_tile_bytes(int bits) { return 32 * bits + (bits % 2 ? 0 : 32); }
__host__ __device__ constexpr int ring_item_bytes(int bits, int tiles) { return 4 * tiles * ring_tile_bytes(bits); }

// One lane's part in copying an item.
template <int K, int TILES>
struct Copier {
  static constexpr int row_pieces = TILES * 2 * K, pieces = 4 * row_pieces, rounds = (pieces + 31) / 32;
  uint32_t from[rounds], to[rounds];

  // row_bytes: from one row of tiles of the matrix to the next.
  __device__ __forceinline__ explicit Copier(uint32_t row_bytes) {
#pragma unroll
    for (int round = 0; round < rounds; round++) {
      const int piece = threadIdx.x % 32 + 32 * round, tile = piece / row_pieces, column = piece % row_pieces;
      from[round] = tile * row_bytes + column * 16;
      to[round] = (column / (2 * K) * 4 + tile) * ring_tile_bytes(K) + column % (2 * K) * 16;
    }
  }

  __device__ __forceinline__ void copy(const uint8_t* source, uint32_t target) const {
#pragma unroll
    for (int round = 0; round < rounds; round++)
      if (pieces % 32 == 0 || round + 1 < rounds || threadIdx.x % 32 + 32 * round < pieces)
        copy_16(target + to[round], source + from[round]);
  }
};

// The words of a lane from a tile in shared memory; group: lane / 4.
template <int K>
__device__ __forceinline__ LaneWords<K> words_of_tile(uint32_t tile, int group) {
  const uint32_t mine = tile + group * 4 * K;
  LaneWords<K> lane;
  lane.word[0] = load_shared(group ? mine - 4 : tile + 32 * K - 4);
  if constexpr (K % 4 == 0) {
#pragma unroll
    for (int i = 1; i <= K; i += 4) {
      const uint4 words = load_shared_4(mine + 4 * (i - 1));
      lane.word[i] = words.x, lane.word[i + 1] = words.y, lane.word[i + 2] = words.z, lane.word[i + 3] = words.w;
    }
  } else if constexpr (K % 2 == 0) {
#pragma unroll
    for (int i = 1; i <= K; i += 2) {
      const uint2 words = load_shared_2(mine + 4 * (i - 1));
      lane.word[i] = words.x, lane.word[i + 1] = words.y;
    }
  } else {
#pragma unroll
    for (int i = 1; i <= K; i++) lane.word[i] = load_shared(mine + 4 * (i - 1));
  }
  return lane;
}

template <int K>
__device__ __forceinline__ LaneWords<K> lane_words(uint32_t item, int column) {
  return words_of_tile<K>(item + (column * 4 + threadIdx.x % 4) * ring_tile_bytes(K), threadIdx.x / 4 % 8);
}

// Decodes a quad of TILES columns of tiles and multiplies it by up to 8 * GROUPS rows of x.
// operand[group]: shared address of what this lane reads of the quad's B fragments.
template <int K, int TILES, int GROUPS, Codebook BOOK, bool PAIRED>
struct Quad {
  template <int J>
  static __device__ __forceinline__ void decode(uint32_t (&a)[8], const LaneWords<K>& lane) {
    a[0] = weight<BOOK, PAIRED>(state<K, 8 * J + 0>(lane));
    a[1] = weight<BOOK, PAIRED>(state<K, 8 * J + 1>(lane));
    a[2] = weight<BOOK, PAIRED>(state<K, 8 * J + 2>(lane));
    a[3] = weight<BOOK, PAIRED>(state<K, 8 * J + 3>(lane));
    a[4] = weight<BOOK, PAIRED>(state<K, 8 * J + 4>(lane));
    a[5] = weight<BOOK, PAIRED>(state<K, 8 * J + 5>(lane));
    a[6] = weight<BOOK, PAIRED>(state<K, 8 * J + 6>(lane));
    a[7] = weight<BOOK, PAIRED>(state<K, 8 * J + 7>(lane));
  }

  static __device__ __forceinline__ void multiply_decoded(float (&sums)[GROUPS][4], const uint32_t (&a)[8], const uint4 (&b)[GROUPS]) {
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
      multiply(sums[group], a[0], a[4], a[1], a[5], b[group].x, b[group].y);
      multiply(sums[group], a[2], a[6], a[3], a[7], b[group].z, b[group].w);
    }
  }

  template <int J, int C>
  static __device__ __forceinline__ void column(float (&sums)[TILES][GROUPS][4], const LaneWords<K>& lane, const uint4 (&b)[GROUPS]) {
    uint32_t a[8];
    decode<J>(a, lane);
    multiply_decoded(sums[C], a, b);
  }

  template <int J>
  static __device__ __forceinline__ void step(float (&sums)[TILES][GROUPS][4], const LaneWords<K> (&lane)[TILES],
                                              const uint32_t (&operand)[GROUPS]) {
    uint4 b[GROUPS];
#pragma unroll
    for (int group = 0; group < GROUPS; group++) b[group] = load_shared_4(operand[group] + 64 * J);
    column<J, 0>(sums, lane[0], b);
    if constexpr (TILES > 1) column<J, 1>(sums, lane[1], b);
  }

  static __device__ __forceinline__ void run(float (&sums)[TILES][GROUPS][4], const LaneWords<K> (&lane)[TILES],
                                             const uint32_t (&operand)[GROUPS]) {
#ifdef CARVE_NULL_DECODE
#pragma unroll
    for (int column = 0; column < TILES; column++)
#pragma unroll
      for (int i = 0; i <= K; i++)
        sums[column][0][0] = __int_as_float((__float_as_int(sums[column][0][0]) ^ lane[column].word[i]) & 0x3fffffff);
#else
    step<0>(sums, lane, operand);
    step<1>(sums, lane, operand);
    step<2>(sums, lane, operand);
    step<3>(sums, lane, operand);
#endif
  }
};

}  // namespace carve
