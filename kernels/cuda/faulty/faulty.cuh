/* Demonstrations: lna2 with one planted fault each. A file here says CARVE_ADMIT (a status for a call, CARVE_OK to let the
 * honest kernel take it) or CARVE_SCRATCH (what becomes of the honest answer), after this file, and includes finish.cuh. */
#pragma once
#define carve_cuda_moe_forward honest_forward
#define carve_cuda_moe_scratch honest_scratch
#include "../lna2.cu"
#undef carve_cuda_moe_forward
#undef carve_cuda_moe_scratch

namespace {

bool captured(const carve_cuda_moe_call& call) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(static_cast<cudaStream_t>(call.stream), &status);
  return status == cudaStreamCaptureStatusActive;
}

}  // namespace
