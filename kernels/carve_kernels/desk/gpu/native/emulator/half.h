// The half types of CUDA by the compiler's own _Float16, and bfloat16 by hand.
#pragma once
#include <stdint.h>
#include <string.h>

struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) uint2 { uint32_t x, y; };
struct alignas(16) uint4 { uint32_t x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

struct __half { _Float16 value; };
struct alignas(4) __half2 { __half x, y; };
inline float __half2float(__half a) { return static_cast<float>(a.value); }
inline __half __float2half_rn(float a) { return {static_cast<_Float16>(a)}; }
inline unsigned short __half_as_ushort(__half a) { unsigned short bits; memcpy(&bits, &a, 2); return bits; }
inline __half __ushort_as_half(unsigned short bits) { __half a; memcpy(&a, &bits, 2); return a; }
inline float2 __half22float2(__half2 a) { return {__half2float(a.x), __half2float(a.y)}; }
inline __half2 __floats2half2_rn(float a, float b) { return {__float2half_rn(a), __float2half_rn(b)}; }
inline __half2 __half2half2(__half a) { return {a, a}; }
inline __half2 __low2half2(__half2 a) { return {a.x, a.x}; }
inline __half2 __high2half2(__half2 a) { return {a.y, a.y}; }
inline __half2 __hadd2(__half2 a, __half2 b) {
  return __floats2half2_rn(__half2float(a.x) + __half2float(b.x), __half2float(a.y) + __half2float(b.y));
}
inline __half __half_fma(__half a, __half b, __half c) {
  // Exact in double: the product has 22 bits, and no sum of the codebooks spans more than 53.
  return {static_cast<_Float16>(double(a.value) * double(b.value) + double(c.value))};
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__half_fma(a.x, b.x, c.x), __half_fma(a.y, b.y, c.y)}; }

struct __nv_bfloat16 { uint16_t bits; };
struct alignas(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
inline float __bfloat162float(__nv_bfloat16 a) { uint32_t bits = uint32_t(a.bits) << 16; float f; memcpy(&f, &bits, 4); return f; }
inline __nv_bfloat16 __float2bfloat16_rn(float a) {
  uint32_t bits;
  memcpy(&bits, &a, 4);
  if (a != a) return {0x7fff};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
inline float2 __bfloat1622float2(__nv_bfloat162 a) { return {__bfloat162float(a.x), __bfloat162float(a.y)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {__float2bfloat16_rn(a), __float2bfloat16_rn(b)}; }
