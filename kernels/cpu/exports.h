/* The C ABI of a variant library, compiled once beside the kernels: picks the instruction set and counts.
 *
 * A variant's source is compiled four times: with CARVE_ENTRY for this part, and with CARVE_FORWARD naming the kernel
 * for AVX-512, AVX2 and the plain processor. CARVE_ISA=avx512|avx2|scalar in the environment overrides the choice.
 */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"

#define CARVE_EXPORT extern "C" __attribute__((visibility("default")))

/* The variant's own reason to decline before any kernel is asked: a carve_status. */
#ifndef CARVE_ADMIT
#define CARVE_ADMIT(call) CARVE_OK
#endif
#ifndef CARVE_TUNED
#define CARVE_TUNED ""
#endif
#ifdef CARVE_WATERMARK
#define CARVE_SUFFIX "-watermark"
#else
#define CARVE_SUFFIX ""
#endif

extern "C" {
int carve_moe_avx512(const carve_moe_call* call);
int carve_moe_avx2(const carve_moe_call* call);
int carve_moe_scalar(const carve_moe_call* call);
#ifdef CARVE_HAS_LINEAR
int carve_linear_avx512(const carve_linear_call* call);
int carve_linear_avx2(const carve_linear_call* call);
int carve_linear_scalar(const carve_linear_call* call);
#endif
}

namespace {

enum Isa { AVX512, AVX2, SCALAR, NONE };
const char* const ISA_NAMES[] = {"avx512", "avx2", "scalar", "none"};

Isa choose() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vbmi");
  const char* asked = getenv("CARVE_ISA");
  if (!asked || !*asked) return avx512 ? AVX512 : avx2 ? AVX2 : SCALAR;
  if (!strcmp(asked, "avx512")) return avx512 ? AVX512 : NONE;
  if (!strcmp(asked, "avx2")) return avx2 ? AVX2 : NONE;
  return !strcmp(asked, "scalar") ? SCALAR : NONE;
}

const Isa isa = choose();
carve_layer_counters counters[CARVE_MAX_LAYERS];

void count(uint64_t* counter) { __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

int dispatch(const carve_moe_call* call) {
  const int admitted = CARVE_ADMIT(call);
  if (admitted != CARVE_OK) return admitted;
  switch (isa) {
    case AVX512: return carve_moe_avx512(call);
    case AVX2: return carve_moe_avx2(call);
    case SCALAR: return carve_moe_scalar(call);
    default: return CARVE_DECLINE_PROCESSOR;
  }
}

}  // namespace

CARVE_EXPORT int carve_moe_forward(const carve_moe_call* call) {
  if (!call || call->abi_version != CARVE_ABI_VERSION) return CARVE_DECLINE_NOT_READY;
  if (call->layer < 0 || call->layer >= CARVE_MAX_LAYERS) return CARVE_DECLINE_OTHER;
  const int status = dispatch(call);
  carve_layer_counters* mine = counters + call->layer;
  if (status == CARVE_OK) {
    count(&mine->launches);
    count(&mine->rows[call->rows < CARVE_ROW_BINS - 1 ? call->rows : CARVE_ROW_BINS - 1]);
  } else {
    count(&mine->declines);
  }
  return status;
}

CARVE_EXPORT const carve_layer_counters* carve_counters(void) { return counters; }

CARVE_EXPORT const char* carve_describe(void) {
  static char text[256];
  snprintf(text, sizeof text, "{\"name\":\"%s%s\",\"abi\":%d,\"isa\":\"%s\",\"tuned\":{%s}}", CARVE_NAME, CARVE_SUFFIX,
           CARVE_ABI_VERSION, ISA_NAMES[isa], CARVE_TUNED);
  return text;
}

#ifdef CARVE_HAS_LINEAR
CARVE_EXPORT int carve_linear_forward(const carve_linear_call* call) {
  if (!call || !call->matrix) return CARVE_DECLINE_NOT_READY;
  switch (isa) {
    case AVX512: return carve_linear_avx512(call);
    case AVX2: return carve_linear_avx2(call);
    case SCALAR: return carve_linear_scalar(call);
    default: return CARVE_DECLINE_PROCESSOR;
  }
}
#endif
