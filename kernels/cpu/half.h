/* IEEE half precision without a half type: exact conversions for every instruction set a library is built for. */
#pragma once
#include <stdint.h>
#include <string.h>
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace {

inline float float_of_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

inline uint32_t bits_of_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

/* Every half is a float. */
inline float float_of_half(uint16_t half) {
#if defined(__F16C__)
  return _cvtsh_ss(half);
#else
  const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) return float_of_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  /* Subnormals come out right because the multiplication normalises them. */
  return float_of_bits(sign | bits_of_float(float_of_bits(magnitude << 13) * float_of_bits(0x77800000u)));
#endif
}

/* Nearest half, ties to even, as a float. */
inline float round_to_half(float value) {
#if defined(__F16C__)
  return _cvtsh_ss(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT));
#else
  const uint32_t bits = bits_of_float(value);
  const uint32_t sign = bits & 0x80000000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x7f800000u) return value;
  if (magnitude >= 0x477ff000u) return float_of_bits(sign | 0x7f800000u); /* 65520 and above */
  if (magnitude < 0x38800000u) { /* below 2^-14 the spacing is fixed: 2^-24 = one unit in the last place of 0.5f */
    const float shifted = float_of_bits(magnitude) + 0.5f;
    return float_of_bits(sign | bits_of_float(shifted - 0.5f));
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
  return float_of_bits(sign | (rounded & ~0x1fffu));
#endif
}

/* `count` (a multiple of 16) halves as floats. The compiler does not vectorise the intrinsics above. */
inline void floats_of_halves(const uint16_t* halves, float* out, int count) {
#if defined(__AVX512F__)
  for (int i = 0; i < count; i += 16)
    _mm512_storeu_ps(out + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)(halves + i))));
#elif defined(__F16C__)
  for (int i = 0; i < count; i += 8)
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(halves + i))));
#else
  for (int i = 0; i < count; ++i) out[i] = float_of_half(halves[i]);
#endif
}

/* `count` (a multiple of 16) floats to the nearest half, as floats, in place. */
inline void round_to_halves(float* values, int count) {
#if defined(__AVX512F__)
  for (int i = 0; i < count; i += 16)
    _mm512_storeu_ps(values + i,
                     _mm512_cvtph_ps(_mm512_cvtps_ph(_mm512_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT)));
#elif defined(__F16C__)
  for (int i = 0; i < count; i += 8)
    _mm256_storeu_ps(values + i,
                     _mm256_cvtph_ps(_mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT)));
#else
  for (int i = 0; i < count; ++i) values[i] = round_to_half(values[i]);
#endif
}

}  // namespace
