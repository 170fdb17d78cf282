// CUDA C++ for the machine: read before a kernel's source (g++ -include). Only what these sources use.
#pragma once
#include <math.h>

#include <algorithm>

#include "half.h"
#include "machine.h"

#define CARVE_EMULATED 1
#define __device__
#define __host__
#define __global__
#define __constant__ static
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(BYTES) alignas(BYTES)
#define CARVE_SHARED(NAME) uint8_t* NAME = machine::the().block().memory

// Whoever reads .x gets what belongs to the fiber that runs.
struct ThreadIndex { struct { operator unsigned() const { return machine::the().current->thread; } } x; };
struct BlockIndex {
  struct { operator unsigned() const { return machine::the().block().number % machine::the().columns; } } x;
  struct { operator unsigned() const { return machine::the().block().number / machine::the().columns; } } y;
};
struct GridSize {
  struct { operator unsigned() const { return machine::the().columns; } } x;
  struct { operator unsigned() const { return machine::the().grid / machine::the().columns; } } y;
};
inline ThreadIndex threadIdx;
inline BlockIndex blockIdx;
inline GridSize gridDim;

using std::max;
using std::min;

inline int __popc(uint32_t a) { return __builtin_popcount(a); }
inline int __ffs(uint32_t a) { return __builtin_ffs(int(a)); }
inline float __expf(float a) { return expf(a); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __int_as_float(int a) { float f; memcpy(&f, &a, 4); return f; }
inline int __float_as_int(float a) { int i; memcpy(&i, &a, 4); return i; }
inline uint32_t __float_as_uint(float a) { uint32_t i; memcpy(&i, &a, 4); return i; }
inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((uint64_t(high) << 32 | low) << (shift & 31) >> 32);
}
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t both = uint64_t(y) << 32 | x;
  uint32_t found = 0;
  for (int i = 0; i < 4; i++) found |= uint32_t(both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return found;
}
inline uint32_t __dp4a(uint32_t a, uint32_t b, uint32_t c) {
  for (int i = 0; i < 32; i += 8) c += (a >> i & 0xff) * (b >> i & 0xff);
  return c;
}
template <typename T> T __ldg(const T* a) { return *a; }
template <typename T> T __ldcg(const T* a) { return *a; }
template <typename T> T __ldcs(const T* a) { return *a; }
template <typename T> void __stcg(T* a, T value) { *a = value; }

template <typename T> T atomicAdd(T* a, T value) { T before = *a; *a += value; machine::the().events++; return before; }
inline int atomicAdd(int* a, int value) { int before = *a; *a += value; machine::the().events++; return before; }
inline uint32_t atomicOr(uint32_t* a, uint32_t value) { uint32_t before = *a; *a |= value; return before; }
inline uint32_t atomicMin(uint32_t* a, uint32_t value) { uint32_t before = *a; *a = min(before, value); return before; }
inline void __threadfence() {}

inline void __syncthreads() { machine::sync_block(); }
inline int __syncthreads_or(int vote) { machine::sync_block(vote != 0); return machine::the().block().any_before; }
inline void __syncwarp() { machine::meet(1, nullptr, 0); }

template <typename T>
T meet_and_take(int operation, T value, int from) {
  static_assert(sizeof(T) == 4);
  uint32_t word;
  memcpy(&word, &value, 4);
  const auto& all = machine::meet(operation, &word, 1);
  memcpy(&value, &all[from][0], 4);
  return value;
}
template <typename T> T __shfl_xor_sync(uint32_t, T value, int mask) { return meet_and_take(2, value, machine::the().current->lane ^ mask); }
template <typename T> T __shfl_up_sync(uint32_t, T value, int by) {
  const int lane = machine::the().current->lane;
  return meet_and_take(3, value, lane < by ? lane : lane - by);
}
template <typename T> T __shfl_sync(uint32_t, T value, int lane) { return meet_and_take(4, value, lane); }
inline uint32_t __ballot_sync(uint32_t, int vote) {
  const uint32_t word = vote != 0;
  const auto& all = machine::meet(5, &word, 1);
  uint32_t found = 0;
  for (int i = 0; i < 32; i++) found |= all[i][0] << i;
  return found;
}

// The runtime.

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidDevice = 101, cudaErrorUnknown = 999 };
enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerMultiprocessor, cudaDevAttrMaxSharedMemoryPerBlockOptin,
  cudaDevAttrReservedSharedMemoryPerBlock, cudaDevAttrMultiProcessorCount, cudaDevAttrComputeCapabilityMajor };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize, cudaFuncAttributeNonPortableClusterSizeAllowed };
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization, cudaLaunchAttributeClusterDimension };
using cudaStream_t = void*;
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct { int programmaticStreamSerializationAllowed; struct { unsigned x, y, z; } clusterDim; } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

inline int emulated(const char* name, int value) { const char* text = getenv(name); return text ? atoi(text) : value; }
inline const char* cudaGetErrorName(cudaError_t) { return "cudaErrorUnknown"; }
inline const char* cudaGetErrorString(cudaError_t) { return machine::the().failure.c_str(); }
inline cudaError_t cudaGetDevice(int* number) { *number = 0; return cudaSuccess; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = 233472; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = emulated("CARVE_EMULATED_SHARED", 232448); break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = 1024; break;
    case cudaDevAttrMultiProcessorCount: *value = emulated("CARVE_EMULATED_PROCESSORS", 4); break;
    default: *value = 9;
  }
  return cudaSuccess;
}
template <typename F> cudaError_t cudaFuncSetAttribute(F, cudaFuncAttribute, int) { return cudaSuccess; }
template <typename F> cudaError_t cudaOccupancyMaxActiveClusters(int* count, F, const cudaLaunchConfig_t*) {
  *count = emulated("CARVE_EMULATED_CLUSTERS", 2);
  return cudaSuccess;
}
template <typename T> cudaError_t cudaGetSymbolAddress(void** address, T& symbol) { *address = &symbol; return cudaSuccess; }
template <typename A> cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(A), A argument) {
  unsigned cluster = 1;
  for (unsigned i = 0; i < config->numAttrs; i++)
    if (config->attrs[i].id == cudaLaunchAttributeClusterDimension) cluster = config->attrs[i].val.clusterDim.x;
  const auto body = [=] { kernel(argument); };
  machine::the().columns = config->gridDim.x;
  const bool well = machine::launch(body, config->gridDim.x * config->gridDim.y, config->blockDim.x, config->dynamicSmemBytes, cluster);
  return well ? cudaSuccess : cudaErrorUnknown;
}
