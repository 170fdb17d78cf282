/* Knock-out libraries of the dense kernels, as knock_out.cu has them for routed experts: CARVE_KNOCK_OUT_ZERO writes zeros
 * by one launch a call and counts it, without it every call is declined. */
#include <cuda_runtime.h>

#include "abi_dense.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

#ifdef CARVE_KNOCK_OUT_ZERO
#define CARVE_NAME "dense-knock-out-zero"

namespace {

constexpr int kThreads = 256;

// A block row for each part; halves are all zero in every type.
__global__ void knock_out_dense_kernel(const __grid_constant__ carve_dense_call call) {
  const carve_dense_part& part = call.part[blockIdx.y];
  const long long halves = (call.out_type == CARVE_FLOAT32 ? 2ll : 1ll) * call.rows * part.out_features;
  const long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  for (long long at = first; at < halves; at += (long long)gridDim.x * blockDim.x) static_cast<uint16_t*>(part.out)[at] = 0;
  if (first == 0 && blockIdx.y == 0 && call.counters != nullptr) {
    atomicAdd(reinterpret_cast<unsigned long long*>(&call.counters[0]), 1ull);
    atomicAdd(reinterpret_cast<unsigned long long*>(&call.counters[1 + call.rows]), 1ull);
  }
}

}  // namespace
#else
#define CARVE_NAME "dense-knock-out-decline"
#endif

EXPORT int carve_dense_forward(const carve_dense_call* call) {
  if (call->rows > CARVE_CUDA_MAX_ROWS) return CARVE_DECLINE_ROWS_ABOVE;
#ifdef CARVE_KNOCK_OUT_ZERO
  knock_out_dense_kernel<<<dim3(16, call->parts), kThreads, 0, static_cast<cudaStream_t>(call->stream)>>>(*call);
  return cudaGetLastError() == cudaSuccess ? int(CARVE_OK) : int(CARVE_CUDA_RUNTIME);
#else
  return CARVE_DECLINE_NOT_READY;
#endif
}

EXPORT int64_t carve_dense_scratch(int32_t, int32_t, int32_t) { return 256; }

EXPORT const char* carve_dense_describe(void) { return "{\"name\": \"" CARVE_NAME "\"}"; }
