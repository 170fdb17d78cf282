/* The C ABI of the dense kernels: one launch multiplies the same rows by a group of EXL3 linears that share an input.
 *
 * Nothing is kept between calls but what the caller owns: the table of parts travels by value with the launch; scratch
 * belongs to one group on one stream. So fans across modules need no shared pool.
 */
#pragma once
#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CARVE_DENSE_ABI_VERSION 1
#define CARVE_DENSE_PARTS 8

typedef struct {
  const void* trellis; /* uint16 [in/16, out/16, 16*bits], 16-byte aligned */
  const void* suh;     /* fp16 [in], 8-byte aligned */
  const void* svh;     /* fp16 [out], 8-byte aligned */
  void* out;           /* [rows, out] of out_type, 16-byte aligned, fully written */
  int32_t out_features;
} carve_dense_part;

typedef struct {
  int32_t abi_version;
  int32_t rows, in_features, parts, bits, codebook;
  int32_t x_type, out_type;   /* carve_type */
  int32_t passes;             /* blocks of 256 inputs one CTA takes; 0 lets the library choose */
  const void* x;              /* [rows, in], 16-byte aligned */
  carve_dense_part part[CARVE_DENSE_PARTS];
  void* scratch;              /* zeroed once by the owner; every launch leaves its control words zero again */
  int64_t scratch_bytes;      /* at least carve_dense_scratch of the largest call */
  uint64_t* counters;         /* device uint64 [1 + CARVE_ROW_BINS]: launches, then a histogram of rows; may be null */
  void* stream;               /* cudaStream_t */
} carve_dense_call;

int carve_dense_forward(const carve_dense_call* call); /* carve_status or carve_cuda_failure; a decline queues nothing */
int64_t carve_dense_scratch(int32_t rows, int32_t in_features, int32_t out_features_of_all_parts);
const char* carve_dense_describe(void); /* one line of JSON */

#ifdef __cplusplus
}
#endif
