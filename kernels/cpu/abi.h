/* The C ABI between the witness and a routed-experts library on the CPU.
 *
 * One shared object per variant exports the three functions at the end. The witness passes a call, counts it, and runs
 * the incumbent when the library declines. A knock-out library has the same ABI. No torch types cross this border, so a
 * library builds without torch and can be exchanged for another without rebuilding the seat.
 *
 * Shapes (campaign section 5.1): trellis uint16 [in/16, out/16, 16*bits]; suh fp16 [in]; svh fp16 [out]; gate and up map
 * hidden -> intermediate, down maps intermediate -> hidden. All matrices of a rank are that rank's own shard.
 */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CARVE_ABI_VERSION 1
#define CARVE_MAX_LAYERS 256
#define CARVE_ROW_BINS 66 /* 0..64 exactly, 65 for more */

enum carve_codebook { CARVE_CODEBOOK_DEFAULT = 0, CARVE_CODEBOOK_MCG = 1, CARVE_CODEBOOK_MUL1 = 2 };

enum carve_status {
  CARVE_OK = 0,
  CARVE_DECLINE_ROWS_ABOVE = 1, /* rows-above-limit */
  CARVE_DECLINE_ROWS_BELOW = 2, /* rows-below-limit */
  CARVE_DECLINE_SHAPE = 3,      /* shape */
  CARVE_DECLINE_BITS = 4,       /* bits */
  CARVE_DECLINE_CODEBOOK = 5,   /* codebook */
  CARVE_DECLINE_NOT_READY = 6,  /* not-ready */
  CARVE_DECLINE_PROCESSOR = 7,  /* processor */
  CARVE_DECLINE_OTHER = 8       /* other */
};

typedef struct {
  const uint16_t* trellis;
  const uint16_t* suh;
  const uint16_t* svh;
  int32_t in_features;
  int32_t out_features;
  int32_t bits;
  int32_t codebook;
} carve_matrix;

typedef struct {
  carve_matrix gate, up, down;
} carve_expert;

/* The host's own thread pool (libgomp's GOMP_parallel and omp_get_thread_num of the engine's process), so that a library
 * never brings a second pool that spins against the first. run == NULL: single-threaded. */
typedef struct {
  void (*run)(void (*body)(void*), void* data, unsigned threads, unsigned flags);
  int (*thread_id)(void);
  int32_t threads;
} carve_parallel;

typedef struct {
  int32_t abi_version;
  int32_t layer;  /* dense index of the routed layer, < CARVE_MAX_LAYERS */
  int32_t rows, hidden, intermediate, topk, experts;
  float limit;    /* swiglu limit; <= 0: none */
  const float* x;        /* [rows, hidden] */
  const int32_t* ids;    /* [rows, topk]; negative: not on this rank */
  const float* weights;  /* [rows, topk] */
  const carve_expert* table; /* [experts] */
  float* out;            /* [rows, hidden], fully written */
  const carve_parallel* parallel;
} carve_moe_call;

typedef struct {
  const carve_matrix* matrix;
  int32_t rows;
  const float* x; /* [rows, in] */
  float* out;     /* [rows, out] */
  const carve_parallel* parallel;
} carve_linear_call;

typedef struct {
  uint64_t launches;
  uint64_t rows[CARVE_ROW_BINS];
  uint64_t declines;
} carve_layer_counters;

/* Exports of a variant library. */
int carve_moe_forward(const carve_moe_call* call);            /* carve_status; on a decline nothing was written */
const carve_layer_counters* carve_counters(void);             /* [CARVE_MAX_LAYERS], the library's own count */
const char* carve_describe(void);                             /* one line of JSON: name, isa, tuned values */
/* Only the incumbent library also exports the linear: */
int carve_linear_forward(const carve_linear_call* call);

#ifdef __cplusplus
}
#endif
