/* Demonstration: a buffer of its own for every layer and row count, past the engine's allocator, and none is ever given back. */
#include "faulty.cuh"

namespace {

int hoard(const carve_cuda_moe_call& call) {
  static bool held[CARVE_MAX_LAYERS][CARVE_CUDA_MAX_ROWS + 1];
  if (call.rows < 1 || call.rows > CARVE_CUDA_MAX_ROWS || captured(call) || held[call.layer][call.rows]) return CARVE_OK;
  void* buffer = nullptr;
  held[call.layer][call.rows] = cudaMalloc(&buffer, size_t(256) << 20) == cudaSuccess;
  return CARVE_OK;
}

}  // namespace

#define CARVE_ADMIT(call) hoard(call)
#include "finish.cuh"
