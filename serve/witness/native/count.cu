// Counts on the device what a stream runs: one thread, queued behind each kernel on the same stream, so that replays of
// a captured graph are counted without any Python and without the kernel's own help.
//
// Counters lie in two banks, one for what an engine runs before it serves (profiling, warm-up, capture) and one for what
// it serves; a word on the device says which bank is counted in, so a node captured in a graph follows it.
#include <cuda_runtime.h>

#include "../../../kernels/cpu/abi.h"

namespace {

constexpr unsigned long long cells = 1 + CARVE_ROW_BINS;  // launches, then a histogram of rows

__global__ void count(unsigned long long* banks, unsigned long long slots, const int* serving, unsigned long long slot, int bin) {
  unsigned long long* at = banks + ((*serving ? slots : 0) + slot) * cells;
  atomicAdd(at, 1ull);
  atomicAdd(at + 1 + bin, 1ull);
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int carve_count_cells(void) { return int(cells); }

// Queues one count on `stream`. Returns a cudaError_t.
EXPORT int carve_count(unsigned long long* banks, unsigned long long slots, const int* serving, unsigned long long slot, int rows, void* stream) {
  if (slot >= slots || rows < 0) return int(cudaErrorInvalidValue);
  count<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(banks, slots, serving, slot, rows < CARVE_ROW_BINS - 1 ? rows : CARVE_ROW_BINS - 1);
  return int(cudaGetLastError());
}

// The number of the capture that `stream` takes part in, 0 where it takes part in none. Returns a cudaError_t.
EXPORT int carve_capture(void* stream, unsigned long long* number) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long found = 0;
  cudaError_t error = cudaStreamGetCaptureInfo(static_cast<cudaStream_t>(stream), &status, &found);
  *number = error == cudaSuccess && status == cudaStreamCaptureStatusActive ? found : 0;
  return int(error);
}
