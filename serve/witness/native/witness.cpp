// Counts every call of every variant before it can say anything about itself. No torch, no allocation, no locks: all
// dispatches of a rank come from one thread of its worker.
//
// A launch is counted after the variant has returned CARVE_OK, a decline by its typed status. Both keep a histogram of
// rows (0..64 exactly, 65 for more), so that a window's rows can be compared with what the plan declares.

#include "../../../kernels/cpu/abi.h"

namespace {

constexpr int kVariants = 16;
constexpr int kReasons = 9;  // carve_status without CARVE_OK has 8; index 0 stays unused

using MoeFunction = int (*)(const carve_moe_call*);
using LinearFunction = int (*)(const carve_linear_call*);

struct Variant {
  MoeFunction moe = nullptr;
  LinearFunction linear = nullptr;
  carve_layer_counters experts[CARVE_MAX_LAYERS] = {};
  carve_layer_counters linears[CARVE_MAX_LAYERS] = {};
  carve_layer_counters declines[kReasons][CARVE_MAX_LAYERS] = {};  // launches = number of declines
};

Variant variants[kVariants];

int bin(int rows) { return rows > 64 ? 65 : rows < 0 ? 0 : rows; }

void count(carve_layer_counters& counters, int rows) {
  counters.launches += 1;
  counters.rows[bin(rows)] += 1;
}

bool known(int variant, int layer) {
  return variant >= 0 && variant < kVariants && layer >= 0 && layer < CARVE_MAX_LAYERS;
}

}  // namespace

extern "C" {

int carve_witness_abi(void) { return CARVE_ABI_VERSION; }

// Gives a variant its entry points; either may be null. Returns 0, or -1 for an index out of range.
int carve_witness_set(int variant, MoeFunction moe, LinearFunction linear) {
  if (!known(variant, 0)) return -1;
  variants[variant].moe = moe;
  variants[variant].linear = linear;
  return 0;
}

// Runs routed experts on one variant. Returns its carve_status; a variant without the entry point declines not-ready.
int carve_witness_moe(int variant, const carve_moe_call* call) {
  if (!known(variant, call->layer)) return CARVE_DECLINE_OTHER;
  Variant& chosen = variants[variant];
  int status = chosen.moe ? chosen.moe(call) : CARVE_DECLINE_NOT_READY;
  if (status == CARVE_OK) {
    count(chosen.experts[call->layer], call->rows);
    return status;
  }
  if (status < 0 || status >= kReasons) status = CARVE_DECLINE_OTHER;
  count(chosen.declines[status][call->layer], call->rows);
  return status;
}

// Runs the matrices of one linear module in turn; they count as one launch. Returns the first status that is not OK.
int carve_witness_linear(int variant, int layer, int matrices, const carve_linear_call* calls) {
  if (!known(variant, layer)) return CARVE_DECLINE_OTHER;
  Variant& chosen = variants[variant];
  if (!chosen.linear) return CARVE_DECLINE_NOT_READY;
  for (int i = 0; i < matrices; ++i) {
    int status = chosen.linear(&calls[i]);
    if (status != CARVE_OK) return status;
  }
  count(chosen.linears[layer], matrices ? calls[0].rows : 0);
  return CARVE_OK;
}

// The readers give arrays of CARVE_MAX_LAYERS, or null for an index out of range.
const carve_layer_counters* carve_witness_experts(int variant) {
  return known(variant, 0) ? variants[variant].experts : nullptr;
}

const carve_layer_counters* carve_witness_linears(int variant) {
  return known(variant, 0) ? variants[variant].linears : nullptr;
}

const carve_layer_counters* carve_witness_declines(int variant, int reason) {
  return known(variant, 0) && reason > 0 && reason < kReasons ? variants[variant].declines[reason] : nullptr;
}

}  // extern "C"
