/* Rows times decoded tiles: every weight of a column tile is decoded once into the first-level cache and used for all
 * rows. Inputs and accumulators are in the kernel order of exl3.h. */
#pragma once
#include "exl3.h"
#include "hadamard.h"

namespace {

constexpr int PAIRS = 8;                     /* column pairs of a tile */
constexpr int CHUNK_TILES = 16;              /* input tiles decoded at a time: 16 KiB of floats */
constexpr int COLUMN_SUMS = PAIRS * 16;      /* partial sums of one row and one column tile */

/* One block of 128 inputs from natural to kernel order. */
inline void to_kernel_order(const float* natural, float* ordered) {
#if defined(__AVX512F__)
  lane_indices from;
  for (int p = 0; p < TILE; ++p) from[p] = kernel_row(p >> 3, p & 7);
  for (int i = 0; i < BLOCK; i += TILE) *(lanes*)(ordered + i) = __builtin_shuffle(*(const lanes*)(natural + i), from);
#else
  for (int tile = 0; tile < BLOCK / TILE; ++tile)
#pragma GCC unroll 16
    for (int p = 0; p < TILE; ++p) ordered[tile * TILE + p] = natural[tile * TILE + kernel_row(p >> 3, p & 7)];
#endif
}

/* Inputs for part `part` of the 16 elements at one step: elements 8..15 use the inputs of elements 0..7. */
inline lanes load_inputs(const float* x, int part) {
#if defined(__AVX512F__)
  (void)part;
  return (lanes)_mm512_broadcast_f32x8(_mm256_loadu_ps(x));
#else
  return *(const lanes*)(x + part * LANES % 8);
#endif
}

/* sums[r][pair][16] += w[tile][pair][step][16] * x[r][tile][step][8] for ROWS rows and pairs first..first+GROUP. */
template <int ROWS, int GROUP>
inline void multiply_group(const float* w, const float* x, size_t row_stride, int tiles, int first, float* sums) {
  for (int part = 0; part < 16 / LANES; ++part) {
    lanes total[ROWS][GROUP];
    float* base = sums + first * 16 + part * LANES;
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
      for (int g = 0; g < GROUP; ++g) total[r][g] = *(const lanes*)(base + r * COLUMN_SUMS + g * 16);
    const float* weights = w + first * 32 + part * LANES;
    for (int tile = 0; tile < tiles; ++tile)
#pragma GCC unroll 2
      for (int step = 0; step < 2; ++step) {
        lanes inputs[ROWS];
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) inputs[r] = load_inputs(x + r * row_stride + tile * TILE + step * 8, part);
#pragma GCC unroll 8
        for (int g = 0; g < GROUP; ++g) {
          const lanes weight = *(const lanes*)(weights + tile * TILE_WEIGHTS + g * 32 + step * 16);
#pragma GCC unroll 8
          for (int r = 0; r < ROWS; ++r) total[r][g] += inputs[r] * weight;
        }
      }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r)
#pragma GCC unroll 8
      for (int g = 0; g < GROUP; ++g) *(lanes*)(base + r * COLUMN_SUMS + g * 16) = total[r][g];
  }
}

/* Accumulators that fit the registers: 16 of 32 with AVX-512, 8 of 16 otherwise. */
template <int ROWS>
inline void multiply_rows(const float* w, const float* x, size_t row_stride, int tiles, float* sums) {
  constexpr int REGISTERS = LANES == 16 ? 16 : 8;
  constexpr int GROUP = REGISTERS / ROWS < PAIRS ? REGISTERS / ROWS : PAIRS;
  for (int first = 0; first < PAIRS; first += GROUP)
    multiply_group<ROWS, GROUP>(w, x, row_stride, tiles, first, sums);
}

inline void multiply(const float* w, const float* x, size_t row_stride, int rows, int tiles, float* sums) {
  int r = 0;
  for (; rows - r >= 8; r += 8) multiply_rows<8>(w, x + r * row_stride, row_stride, tiles, sums + r * COLUMN_SUMS);
  if (rows - r >= 4) multiply_rows<4>(w, x + r * row_stride, row_stride, tiles, sums + r * COLUMN_SUMS), r += 4;
  if (rows - r >= 2) multiply_rows<2>(w, x + r * row_stride, row_stride, tiles, sums + r * COLUMN_SUMS), r += 2;
  if (rows - r >= 1) multiply_rows<1>(w, x + r * row_stride, row_stride, tiles, sums + r * COLUMN_SUMS);
}

/* The 16 column totals of one row: each half of a pair's 16 partial sums is one column. Each total is
 * ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7)), on every processor. */
inline void reduce_columns(const float* sums, float* y) {
#if defined(__AVX512F__)
  /* Three rounds add up two vectors at a time; four floats of one column become two, then one. */
  __m512 quarter[4], half[2];
  for (int i = 0; i < 4; ++i) { /* [pair 2i low, pair 2i high, pair 2i + 1 low, pair 2i + 1 high] of 4 floats */
    const __m512 a = _mm512_loadu_ps(sums + i * 32), b = _mm512_loadu_ps(sums + i * 32 + 16);
    quarter[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
  for (int i = 0; i < 2; ++i) {
    const __m512d a = _mm512_castps_pd(quarter[2 * i]), b = _mm512_castps_pd(quarter[2 * i + 1]);
    half[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  const __m512 total =
      _mm512_add_ps(_mm512_shuffle_ps(half[0], half[1], 0x88), _mm512_shuffle_ps(half[0], half[1], 0xdd));
  /* Lane l holds columns 2j + l / 2 + 8 * (l % 2) for j = 0..3. */
  lane_indices from;
  for (int c = 0; c < TILE; ++c) from[c] = 4 * (2 * (c & 1) + (c >> 3)) + ((c & 7) >> 1);
  *(lanes*)y = __builtin_shuffle((lanes)total, from);
#else
  for (int half = 0; half < 2; ++half)
    for (int g = 0; g < PAIRS; ++g) {
      const float* s = sums + g * 16 + half * 8;
      y[half * 8 + g] = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
    }
#endif
}

/* y[r][column - first] for `columns` columns (a multiple of 16) from `first_column`, all input tiles below `row_tiles`.
 * x: [rows][in] in kernel order; sums: scratch [rows][COLUMN_SUMS]; w: scratch [CHUNK_TILES][256]. */
inline void multiply_columns(const carve_matrix& m, int row_tiles, const float* x, size_t row_stride, int rows,
                             int first_column, int columns, float* y, size_t y_stride, float* sums, float* w) {
  const decode_function decode = decoder(m.bits, m.codebook);
  const size_t stride = tile_words(m.bits) * (size_t)(m.out_features / TILE);
  for (int column = 0; column < columns; column += TILE) {
    memset(sums, 0, sizeof(float) * COLUMN_SUMS * (size_t)rows);
    for (int start = 0; start < row_tiles; start += CHUNK_TILES) {
      const int tiles = row_tiles - start < CHUNK_TILES ? row_tiles - start : CHUNK_TILES;
      decode(tile_at(m, start, (first_column + column) / TILE), stride, tiles, w);
      multiply(w, x + (size_t)start * TILE, row_stride, rows, tiles, sums);
    }
    for (int r = 0; r < rows; ++r) reduce_columns(sums + r * COLUMN_SUMS, y + r * y_stride + column);
  }
}

}  // namespace
