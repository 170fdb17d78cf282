// Four kernels with one fault each, so that a sanitizer that finds nothing elsewhere has first been seen to find something.
#include <stdint.h>
#include <string.h>

__global__ void planted_memcheck(int* cells) { cells[threadIdx.x + 4096] = 1; }  // far past the end

__global__ void planted_racecheck(int* out) {
  __shared__ int cell[64];
  cell[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = cell[(threadIdx.x + 32) % 64];  // the other warp's, without a barrier
}

__global__ void planted_initcheck(const int* never_written, int* out) { out[threadIdx.x] = never_written[threadIdx.x]; }

__global__ void planted_synccheck(volatile int* out) {
  if (out[threadIdx.x] < 1 && threadIdx.x % 32 < 16) __syncthreads();  // half of each warp never comes
  if (threadIdx.x % 32 >= 16) __syncwarp(0x0000ffffu);  // a mask without the callers
  out[threadIdx.x] = 1;
}

// 0, or 2 for a tool that no fault is planted for.
extern "C" __attribute__((visibility("default"))) int carve_planted(const char* tool) {
  int *a = nullptr, *b = nullptr;
  cudaMalloc(&a, 64 * sizeof(int)), cudaMalloc(&b, 64 * sizeof(int));
  if (!strcmp(tool, "memcheck")) planted_memcheck<<<1, 64>>>(a);
  else if (!strcmp(tool, "racecheck")) planted_racecheck<<<1, 64>>>(a);
  else if (!strcmp(tool, "initcheck")) planted_initcheck<<<1, 64>>>(b, a);
  else if (!strcmp(tool, "synccheck")) cudaMemset(a, 0, 64 * sizeof(int)), planted_synccheck<<<1, 64>>>(a);
  else return 2;
  cudaDeviceSynchronize();
  return 0;
}
