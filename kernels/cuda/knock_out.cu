/* Knock-out libraries: the ABI of the routed experts without their work. CARVE_KNOCK_OUT_ZERO writes zeros, which must
 * change the output on every rank; without it every call is declined, which strict serving must refuse. Zeros are written
 * and counted by one kernel, so that a captured graph holds what a served one holds: one launch a call. */
#include <cuda_runtime.h>
#include <stdio.h>

#include "counters.cuh"

#define EXPORT extern "C" __attribute__((visibility("default")))

#ifdef CARVE_KNOCK_OUT_ZERO
#define CARVE_NAME "knock-out-zero"
#else
#define CARVE_NAME "knock-out-decline"
#endif

namespace {

thread_local char last_error[256] = "";

int failed(cudaError_t error) {
  snprintf(last_error, sizeof last_error, "%s", cudaGetErrorString(error));
  return CARVE_CUDA_RUNTIME;
}

__global__ void knock_out_routed_experts(uint16_t* out, long long halves, int layer, int rows) {
  const long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  for (long long at = first; at < halves; at += (long long)gridDim.x * blockDim.x) out[at] = 0;
  if (first == 0) carve::count_launch(layer, rows);
}

}  // namespace

EXPORT int carve_cuda_moe_forward(const carve_cuda_moe_call* call) {
#ifdef CARVE_KNOCK_OUT_ZERO
  if (call->rows > CARVE_CUDA_MAX_ROWS) return CARVE_DECLINE_ROWS_ABOVE;
  const long long halves = (call->out_type == CARVE_FLOAT32 ? 2ll : 1ll) * call->rows * call->hidden;
  knock_out_routed_experts<<<64, 256, 0, static_cast<cudaStream_t>(call->stream)>>>(static_cast<uint16_t*>(call->out), halves, call->layer, call->rows);
  if (cudaError_t error = cudaGetLastError()) return failed(error);
  return CARVE_OK;
#else
  (void)call;
  (void)knock_out_routed_experts;
  return CARVE_DECLINE_NOT_READY;
#endif
}

EXPORT int carve_cuda_moe_plan(const carve_cuda_moe_call* call, const carve_cuda_device*, carve_cuda_plan* plan) {
  (void)call;
  *plan = {};
  return CARVE_OK;
}

EXPORT uint64_t carve_cuda_moe_scratch(int32_t, int32_t, int32_t, int32_t, int32_t) { return 128; }

EXPORT const carve_layer_counters* carve_cuda_counters(void) {
  void* address = nullptr;
  if (cudaError_t error = cudaGetSymbolAddress(&address, carve::layer_counters)) return failed(error), nullptr;
  return static_cast<const carve_layer_counters*>(address);
}

EXPORT const char* carve_cuda_describe(void) { return "{\"name\": \"" CARVE_NAME "\"}"; }

EXPORT const char* carve_cuda_last_error(void) { return last_error; }
