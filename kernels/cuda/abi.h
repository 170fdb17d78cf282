/* The C ABI between the witness and a kernel library on the GPU. It extends kernels/cpu/abi.h: codebooks, limits of layers
 * and row bins, and the typed declines are the same; pointers are device pointers and the work is queued on a stream.
 *
 * A call only launches kernels: it allocates nothing, copies nothing and never synchronises, so it may be captured in a
 * CUDA graph. Shapes (campaign section 5.1): trellis uint16 [in/16, out/16, 16*bits], 16-byte aligned; suh fp16 [in] and
 * svh fp16 [out], 8-byte aligned; gate and up map hidden -> intermediate, down maps intermediate -> hidden.
 */
#pragma once
#include <stdint.h>

#include "../cpu/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CARVE_CUDA_ABI_VERSION 1
#define CARVE_CUDA_MAX_ROWS 32
#define CARVE_CUDA_MAX_TOPK 16
#define CARVE_CUDA_MAX_EXPERTS 1024

enum carve_type { CARVE_FLOAT32 = 0, CARVE_BFLOAT16 = 1, CARVE_FLOAT16 = 2 };

/* Failures that are no decline: the arguments contradict themselves, or the CUDA runtime refused. */
enum carve_cuda_failure { CARVE_CUDA_BAD_CALL = 100, CARVE_CUDA_RUNTIME = 101 };

/* Device arrays of `experts` device pointers each, in the order gate, up, down. */
typedef struct {
  const uint16_t* const* trellis;
  const uint16_t* const* suh;
  const uint16_t* const* svh;
  int32_t bits;
  int32_t codebook;
} carve_cuda_experts;

typedef struct {
  int32_t abi_version;
  int32_t layer; /* dense index of the routed layer, < CARVE_MAX_LAYERS */
  int32_t rows, hidden, intermediate, topk, experts;
  float limit;                 /* swiglu limit; <= 0: none */
  int32_t x_type, out_type;    /* carve_type; x is fp16 or bf16 */
  const void* x;               /* [rows, hidden] */
  const int32_t* ids;          /* [rows, topk]; an id outside 0..experts-1 is not on this rank and adds nothing */
  const float* weights;        /* [rows, topk] */
  carve_cuda_experts gate, up, down;
  void* out;                   /* [rows, hidden], fully written */
  void* scratch;               /* zeroed once by the owner, then self-resetting; one stream at a time */
  uint64_t scratch_bytes;      /* at least carve_cuda_moe_scratch of the largest call */
  void* stream;                /* cudaStream_t */
} carve_cuda_moe_call;

/* What a launch is planned from, and the plan: both can be had without a GPU. */
typedef struct {
  int32_t processors, shared_per_processor, shared_per_block, shared_reserved; /* bytes of shared memory */
} carve_cuda_device;

typedef struct {
  int32_t blocks, chunks; /* chunks of gate/up, and as many of down */
  int32_t fragments;      /* inputs of 128 that a block holds at once */
  int32_t shared_bytes;
  uint64_t scratch_bytes;
} carve_cuda_plan;

/* Exports of a variant library. */
int carve_cuda_moe_forward(const carve_cuda_moe_call* call); /* carve_status or carve_cuda_failure; on a decline nothing was queued */
int carve_cuda_moe_plan(const carve_cuda_moe_call* call, const carve_cuda_device* device, carve_cuda_plan* plan);
uint64_t carve_cuda_moe_scratch(int32_t rows, int32_t hidden, int32_t intermediate, int32_t topk, int32_t experts);
/* Device address of carve_layer_counters[CARVE_MAX_LAYERS] on the current device: read it by a copy on another stream. */
const carve_layer_counters* carve_cuda_counters(void);
/* The register that each weight of four tiles stacked along the inputs (32 * bits bytes each) is multiplied as: out[4][8][32]. For the
 * desk; as_pairs: whether the caller expects both halves of the codebook's pair, or their half sum twice. */
int carve_cuda_decode(const void* trellis, int32_t bits, int32_t codebook, int32_t as_pairs, void* out, void* stream);
const char* carve_cuda_describe(void); /* one line of JSON: name, device, tuned values; valid until the next call */
const char* carve_cuda_last_error(void); /* the CUDA runtime's words after CARVE_CUDA_RUNTIME */

#ifdef __cplusplus
}
#endif
