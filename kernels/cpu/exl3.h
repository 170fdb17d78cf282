/* EXL3 weights: decoding of a 16x16 tile (campaign section 5.1; the readable reference is carve_kernels.exl3).
 *
 * A tile is 256*K bits, most significant bit first in 32-bit words, read as a ring. The 16-bit window that ends at bit
 * (t + 1) * K is the index of the weight at stream position t; a codebook turns the index into a half.
 *
 * Position t = 8 * lane + j is input row 2 * (lane % 4) + j % 2 + 8 * (j / 2 % 2) and output column lane / 4 + 8 * (j / 4)
 * of the tile. Decoded tiles keep a *kernel order* close to the stream's, so that no weight is moved after decoding:
 *
 *   float w[8 pair][2 step][16]    pair g holds columns g (elements 0..7) and g + 8 (elements 8..15);
 *                                  step s and element p are input row kernel_row(s, p % 8)
 *
 * and the 16 inputs of a tile row are stored once in the order kernel_row(0, 0..7), kernel_row(1, 0..7).
 */
#pragma once
#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "abi.h"
#include "half.h"

namespace {

using word = uint32_t __attribute__((may_alias)); /* the stream's unit; the trellis is declared in 16-bit halves of it */

constexpr int TILE = 16;
constexpr int TILE_WEIGHTS = 256;

/* Input row of the tile at step s (0, 1), element p (0..7) of the kernel order. */
constexpr int kernel_row(int s, int p) { return 2 * (2 * s + (p >> 2)) + (p & 1) + 8 * (p >> 1 & 1); }

/* Stream position of element p (0..15) in group i = 2 * pair + step. */
constexpr int stream_position(int i, int p) { return 16 * i + 8 * (p >> 2 & 1) + 4 * (p >> 3) + (p & 3); }

inline size_t tile_words(int bits) { return (size_t)TILE * bits; }

inline const uint16_t* tile_at(const carve_matrix& m, int row_tile, int column_tile) {
  return m.trellis + ((size_t)row_tile * (m.out_features / TILE) + column_tile) * tile_words(m.bits);
}

constexpr uint32_t DEFAULT_MULTIPLIER = 89226354u, DEFAULT_INCREMENT = 64248484u;
constexpr uint32_t MCG_MULTIPLIER = 0xCBAC1FEDu, MUL1_MULTIPLIER = 0x83DCD12Du;

/* ---- The plain way: a whole tile in stream order. ---- */

/* The ring's windows, word by word: the 64 bits that end with a word hold every window that ends in it. */
template <int K>
inline void plain_windows(const word* words, uint32_t* index) {
  uint64_t bits = words[8 * K - 1];
  for (int w = 0, t = 0; w < 8 * K; ++w) {
    bits = bits << 32 | words[w];
    for (const int end = 32 * (w + 1) / K; t < end; ++t) index[t] = bits >> (32 * (w + 1) - (t + 1) * K) & 0xffffu;
  }
}

/* Nearest half, ties to even, of a value that is zero or a normal half: integer arithmetic that vectorises. */
inline float round_normal_to_half(float value) {
  const uint32_t bits = bits_of_float(value);
  return float_of_bits((bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu);
}

/* A half whose exponent field is 011xx is the float whose exponent field is 011111xx. So the format's mask and xor
 * (0x8fff, 0x3b60) can be applied after the bits have been moved to a float's places by an arithmetic shift. */
constexpr uint32_t KEEP = 0x81ffe000u, FORCE = 0x3f6c0000u;

/* default and mcg: the two halves of a 32-bit hash, forced into +-[1/8, 2), are added in half precision.
 * mul1: the sum of the hash's four bytes, scaled to about unit variance by one half-precision fused multiply-add, which
 * is exact in float: an 11 by 11 bit product, common spacing 2^-18, magnitude below 16. */
template <int CODEBOOK>
inline float plain_weight(uint32_t index) {
  if (CODEBOOK == CARVE_CODEBOOK_MUL1) {
    const uint32_t h = index * MUL1_MULTIPLIER;
    const uint32_t sum = (h & 255u) + (h >> 8 & 255u) + (h >> 16 & 255u) + (h >> 24);
    return round_normal_to_half((float)(int32_t)(1024 + sum) * 0x1.bb8p-8f - 0x1.4c4p3f);
  }
  const uint32_t h = CODEBOOK == CARVE_CODEBOOK_MCG ? index * MCG_MULTIPLIER
                                                    : index * DEFAULT_MULTIPLIER + DEFAULT_INCREMENT;
  const float high = float_of_bits((((uint32_t)((int32_t)h >> 3)) & KEEP) ^ FORCE);
  const float low = float_of_bits((((uint32_t)((int32_t)(h << 16) >> 3)) & KEEP) ^ FORCE);
  return round_normal_to_half(high + low);
}

template <int K, int CODEBOOK>
inline void plain_tile(const uint16_t* tile, float* weights) {
  uint32_t index[TILE_WEIGHTS];
  plain_windows<K>((const word*)tile, index);
  for (int t = 0; t < TILE_WEIGHTS; ++t) weights[t] = plain_weight<CODEBOOK>(index[t]);
}

/* ---- Sixteen weights at once, in kernel order. ---- */

#if defined(__AVX512VBMI__)

/* vpmultishiftqb picks each result byte from any bit offset (mod 64) of a 64-bit source. With a pair of neighbouring
 * words broadcast from memory, one instruction cuts out all windows that lie in that pair: 16 for K <= 2. The pair is
 * loaded little-endian, so the stream's second word is in the upper half; offsets are rotated by 32 to make up for it. */
template <int K>
struct Cut {
  static constexpr int RUN = K <= 2 ? 16 : K <= 4 ? 8 : K == 7 ? 2 : 4; /* windows that always share one word pair */
  static constexpr int PERIOD = K % 2 ? 2 : 1;                           /* groups until the bit offsets repeat */
  alignas(64) uint8_t offset[PERIOD][64];
  uint64_t mask[16 / RUN]; /* which result bytes belong to run r */

  static constexpr int word(int t) { return ((t / RUN * RUN + 1) * K - 16 + 32) / 32 - 1; }

  constexpr Cut() : offset(), mask() {
    for (int i = 0; i < PERIOD; ++i)
      for (int p = 0; p < 16; ++p) {
        const int t = stream_position(i, p);
        const int shift = 64 - ((t + 1) * K - 32 * word(t));
        offset[i][4 * p] = (uint8_t)((shift + 32) & 63);
        offset[i][4 * p + 1] = (uint8_t)((shift + 40) & 63);
      }
    for (int p = 0; p < 16; ++p) mask[stream_position(0, p) / RUN] |= (uint64_t)3 << (4 * p);
  }
};

template <int K>
constexpr Cut<K> CUT{};

template <int K>
inline __m512i word_pair(const word* words, int first) {
  constexpr int LAST = 8 * K - 1;
  uint64_t pair;
  if (first < 0 || first == LAST) /* the ring closes */
    pair = (uint64_t)words[0] << 32 | words[LAST];
  else
    memcpy(&pair, words + first, 8);
  return _mm512_set1_epi64((long long)pair);
}

template <int K>
inline __m512i windows(const word* words, int i) {
  constexpr int RUN = Cut<K>::RUN;
  const __m512i offset = _mm512_load_si512(CUT<K>.offset[i % Cut<K>::PERIOD]);
  __m512i cut = _mm512_maskz_multishift_epi64_epi8(CUT<K>.mask[0], offset, word_pair<K>(words, Cut<K>::word(16 * i)));
#pragma GCC unroll 8
  for (int r = 1; r < 16 / RUN; ++r)
    cut = _mm512_mask_multishift_epi64_epi8(cut, CUT<K>.mask[r], offset,
                                            word_pair<K>(words, Cut<K>::word(16 * i + RUN * r)));
  return cut;
}

template <int CODEBOOK>
inline __m512 weights_of(__m512i index) {
  if (CODEBOOK == CARVE_CODEBOOK_MUL1) {
    const __m512i h = _mm512_mullo_epi32(index, _mm512_set1_epi32((int)MUL1_MULTIPLIER));
    const __m512i sum = _mm512_madd_epi16(_mm512_maddubs_epi16(h, _mm512_set1_epi8(1)), _mm512_set1_epi16(1));
    const __m512 value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(sum, _mm512_set1_epi32(1024))),
                                         _mm512_set1_ps(0x1.bb8p-8f), _mm512_set1_ps(-0x1.4c4p3f));
    return _mm512_cvtph_ps(_mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  __m512i h;
  if (CODEBOOK == CARVE_CODEBOOK_MCG)
    h = _mm512_mullo_epi32(index, _mm512_set1_epi32((int)MCG_MULTIPLIER));
  else
    h = _mm512_add_epi32(_mm512_mullo_epi32(index, _mm512_set1_epi32((int)DEFAULT_MULTIPLIER)),
                         _mm512_set1_epi32((int)DEFAULT_INCREMENT));
  const __m512i keep = _mm512_set1_epi32((int)KEEP), force = _mm512_set1_epi32((int)FORCE); /* and, xor: 0x6a */
  const __m512i high = _mm512_ternarylogic_epi32(_mm512_srai_epi32(h, 3), keep, force, 0x6a);
  const __m512i low = _mm512_ternarylogic_epi32(_mm512_srai_epi32(_mm512_slli_epi32(h, 16), 3), keep, force, 0x6a);
  /* The sum is exact in float and has at most 15 significant bits; Veltkamp's split rounds it to the 11 of a half. Ties
   * go to even because 8192 * sum is an even multiple of the half's spacing (a test compares all 65,536 indices). */
  const __m512 sum = _mm512_add_ps(_mm512_castsi512_ps(high), _mm512_castsi512_ps(low));
  return _mm512_fnmadd_ps(sum, _mm512_set1_ps(8192.0f), _mm512_mul_ps(sum, _mm512_set1_ps(8193.0f)));
}

template <int K, int CODEBOOK>
inline void decode_tile(const uint16_t* tile, float* w) {
  const word* words = (const word*)tile;
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_store_ps(w + 16 * i, weights_of<CODEBOOK>(windows<K>(words, i)));
}

#elif defined(__AVX2__)

template <int CODEBOOK>
inline __m256 weights_of(__m256i index) {
  if (CODEBOOK == CARVE_CODEBOOK_MUL1) {
    const __m256i h = _mm256_mullo_epi32(index, _mm256_set1_epi32((int)MUL1_MULTIPLIER));
    const __m256i sum = _mm256_madd_epi16(_mm256_maddubs_epi16(h, _mm256_set1_epi8(1)), _mm256_set1_epi16(1));
    const __m256 value = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_add_epi32(sum, _mm256_set1_epi32(1024))),
                                         _mm256_set1_ps(0x1.bb8p-8f), _mm256_set1_ps(-0x1.4c4p3f));
    return _mm256_cvtph_ps(_mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  __m256i h;
  if (CODEBOOK == CARVE_CODEBOOK_MCG)
    h = _mm256_mullo_epi32(index, _mm256_set1_epi32((int)MCG_MULTIPLIER));
  else
    h = _mm256_add_epi32(_mm256_mullo_epi32(index, _mm256_set1_epi32((int)DEFAULT_MULTIPLIER)),
                         _mm256_set1_epi32((int)DEFAULT_INCREMENT));
  const __m256i keep = _mm256_set1_epi32((int)KEEP), force = _mm256_set1_epi32((int)FORCE);
  const __m256i high = _mm256_xor_si256(_mm256_and_si256(_mm256_srai_epi32(h, 3), keep), force);
  const __m256i low = _mm256_xor_si256(_mm256_and_si256(_mm256_srai_epi32(_mm256_slli_epi32(h, 16), 3), keep), force);
  const __m256 sum = _mm256_add_ps(_mm256_castsi256_ps(high), _mm256_castsi256_ps(low));
  return _mm256_fnmadd_ps(sum, _mm256_set1_ps(8192.0f), _mm256_mul_ps(sum, _mm256_set1_ps(8193.0f)));
}

/* Eight windows in kernel order: every 64-bit lane shifts its own pair of words twice. */
template <int K>
inline __m256i windows(const word* words, int i, int half) {
  alignas(32) uint64_t pair[4];
  alignas(32) uint64_t shift[2][4];
#pragma GCC unroll 8
  for (int p = 0; p < 8; p += 2) {
    const int t = stream_position(i, 8 * half + p); /* p and p + 1 are neighbours: at most 24 bits, so one pair */
    const int first = ((t + 1) * K - 16 + 32) / 32 - 1;
    const uint32_t left = words[first < 0 ? 8 * K - 1 : first], right = words[first + 1 == 8 * K ? 0 : first + 1];
    pair[p / 2] = (uint64_t)left << 32 | right;
    shift[0][p / 2] = (uint64_t)(64 - ((t + 1) * K - 32 * first));
    shift[1][p / 2] = (uint64_t)(64 - ((t + 2) * K - 32 * first));
  }
  const __m256i pairs = _mm256_set_epi64x((long long)pair[3], (long long)pair[2], (long long)pair[1], (long long)pair[0]);
  const __m256i even = _mm256_srlv_epi64(pairs, _mm256_load_si256((const __m256i*)shift[0]));
  const __m256i odd = _mm256_srlv_epi64(pairs, _mm256_load_si256((const __m256i*)shift[1]));
  const __m256i both = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
  return _mm256_and_si256(both, _mm256_set1_epi32(0xffff));
}

template <int K, int CODEBOOK>
inline void decode_tile(const uint16_t* tile, float* w) {
  const word* words = (const word*)tile;
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half)
      _mm256_store_ps(w + 16 * i + 8 * half, weights_of<CODEBOOK>(windows<K>(words, i, half)));
}

#else

template <int K, int CODEBOOK>
inline void decode_tile(const uint16_t* tile, float* w) {
  float weights[TILE_WEIGHTS];
  plain_tile<K, CODEBOOK>(tile, weights);
  for (int i = 0; i < 16; ++i)
    for (int p = 0; p < 16; ++p) w[16 * i + p] = weights[stream_position(i, p)];
}

#endif

/* A function per number of bits (1..8) and codebook of abi.h: TABLE[bits - 1][codebook]. */
#define CARVE_FORMATS(F)                                                                                     \
  {                                                                                                          \
    {F<1, 0>, F<1, 1>, F<1, 2>}, {F<2, 0>, F<2, 1>, F<2, 2>}, {F<3, 0>, F<3, 1>, F<3, 2>},                   \
        {F<4, 0>, F<4, 1>, F<4, 2>}, {F<5, 0>, F<5, 1>, F<5, 2>}, {F<6, 0>, F<6, 1>, F<6, 2>},               \
        {F<7, 0>, F<7, 1>, F<7, 2>}, {F<8, 0>, F<8, 1>, F<8, 2>},                                            \
  }

/* Decodes `tiles` tiles that lie `stride` 16-bit words apart (one column of tiles), 256 floats each. */
typedef void (*decode_function)(const uint16_t* first, size_t stride, int tiles, float* w);

template <int K, int CODEBOOK>
__attribute__((noinline)) void decode_column(const uint16_t* first, size_t stride, int tiles, float* w) {
  for (int i = 0; i < tiles; ++i) decode_tile<K, CODEBOOK>(first + i * stride, w + i * TILE_WEIGHTS);
}

inline decode_function decoder(int bits, int codebook) {
  static const decode_function table[8][3] = CARVE_FORMATS(decode_column);
  return table[bits - 1][codebook];
}

}  // namespace
