/* What every routed-experts variant does the same way: checks, the route plan, the stages' numeric boundaries and the
 * combine (campaign section 5.2). Only the activation is rounded to half; everything else stays in float. */
#pragma once
#include <string.h>

#include "multiply.h"
#include "parallel.h"

namespace {

inline bool matrix_fits(const carve_matrix& m, int in, int out) {
  return m.in_features == in && m.out_features == out && in % BLOCK == 0 && out % BLOCK == 0 && in > 0 && out > 0 &&
         m.trellis && m.suh && m.svh;
}

inline int check_matrix(const carve_matrix& m, int in, int out) {
  if (!matrix_fits(m, in, out)) return CARVE_DECLINE_SHAPE;
  if (m.bits < 1 || m.bits > 8) return CARVE_DECLINE_BITS;
  if (m.codebook < CARVE_CODEBOOK_DEFAULT || m.codebook > CARVE_CODEBOOK_MUL1) return CARVE_DECLINE_CODEBOOK;
  return CARVE_OK;
}

/* Every check that must precede the first write. */
inline int check_call(const carve_moe_call& call) {
  if (call.rows < 0 || call.topk < 1 || call.experts < 1) return CARVE_DECLINE_SHAPE;
  for (int i = 0; i < call.rows * call.topk; ++i) {
    const int id = call.ids[i];
    if (id < 0) continue;
    if (id >= call.experts) return CARVE_DECLINE_SHAPE;
    const carve_expert& e = call.table[id];
    int status = check_matrix(e.gate, call.hidden, call.intermediate);
    if (!status) status = check_matrix(e.up, call.hidden, call.intermediate);
    if (!status) status = check_matrix(e.down, call.intermediate, call.hidden);
    if (status) return status;
  }
  return CARVE_OK;
}

/* exp(x) for x in [-87, 87]: 2^n * p(r) with |r| <= ln2 / 2; relative error about 1e-7. Vectorises. */
inline float exponential(float x) {
  x = x < -87.0f ? -87.0f : x > 87.0f ? 87.0f : x;
  const float n = (x * 1.442695041f + 12582912.0f) - 12582912.0f; /* nearest integer */
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.3888889e-3f;
  p = p * r + 8.3333333e-3f;
  p = p * r + 4.1666667e-2f;
  p = p * r + 1.6666667e-1f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * float_of_bits((uint32_t)((int32_t)n + 127) << 23);
}

/* gate[i] = half(silu(min(gate, limit)) * clamp(up, -limit, limit)) for one block. */
inline void activate(float* gate, const float* up, float limit) {
  for (int i = 0; i < BLOCK; ++i) {
    float g = gate[i], u = up[i];
    if (limit > 0) {
      g = g > limit ? limit : g;
      u = u > limit ? limit : u < -limit ? -limit : u;
    }
    gate[i] = g / (1.0f + exponential(-g)) * u;
  }
  round_to_halves(gate, BLOCK);
}

/* One row of x, rounded to half where the routed experts' boundary asks for it, to the kernel order of a matrix's input. */
template <bool ROUND>
inline void prepare_row(const float* x, const carve_matrix& m, float* ordered) {
  alignas(64) float entry[BLOCK], turned[BLOCK];
  for (int b = 0; b < m.in_features; b += BLOCK) {
    memcpy(entry, x + b, sizeof entry);
    if (ROUND) round_to_halves(entry, BLOCK);
    transform_input(entry, m.suh + b, turned);
    to_kernel_order(turned, ordered + b);
  }
}

/* The (row, slot) pairs of a call, grouped by expert in ascending order and by (row, slot) within an expert. */
struct Routes {
  int experts;         /* experts with at least one pair */
  int pairs;
  int most;            /* pairs of the busiest expert */
  int* expert;         /* [experts] */
  int* first;          /* [experts + 1] */
  int* row;            /* [pairs] */
  int* pair;           /* [rows * topk]: where the pair of a slot is, -1 for none */
};

inline size_t routes_bytes(const carve_moe_call& call) {
  return sizeof(int) * ((size_t)call.experts * 2 + 1 + 2 * (size_t)call.rows * call.topk);
}

inline Routes plan_routes(const carve_moe_call& call, int* memory) {
  const int slots = call.rows * call.topk;
  Routes routes = {0, 0, 0, memory, memory + call.experts, memory + 2 * call.experts + 1, nullptr};
  routes.pair = routes.row + slots;
  int* count = routes.first; /* by expert id, then compacted in place: never more entries than ids read so far */
  memset(count, 0, sizeof(int) * (size_t)(call.experts + 1));
  for (int i = 0; i < slots; ++i)
    if (call.ids[i] >= 0) ++count[call.ids[i]];
  for (int id = 0; id < call.experts; ++id) {
    const int here = count[id];
    if (!here) continue;
    routes.expert[routes.experts] = id;
    routes.first[routes.experts++] = routes.pairs;
    routes.pairs += here;
    if (here > routes.most) routes.most = here;
  }
  routes.first[routes.experts] = routes.pairs;
  for (int e = 0, next = 0; e < routes.experts; ++e)
    for (int i = 0; i < slots; ++i)
      if (call.ids[i] == routes.expert[e]) {
        routes.row[next] = i / call.topk;
        routes.pair[i] = next++;
      }
  for (int i = 0; i < slots; ++i)
    if (call.ids[i] < 0) routes.pair[i] = -1;
  return routes;
}

/* A deliberate error for the watermark build: 1 % of the output. */
#ifdef CARVE_WATERMARK
constexpr float OUTPUT_FACTOR = 1.01f;
#else
constexpr float OUTPUT_FACTOR = 1.0f;
#endif

/* out[row] = sum over slots, in slot order, of weight * partial. */
inline void combine_row(const carve_moe_call& call, const Routes& routes, const float* partial, int row) {
  float* out = call.out + (size_t)row * call.hidden;
  memset(out, 0, sizeof(float) * (size_t)call.hidden);
  for (int slot = 0; slot < call.topk; ++slot) {
    const int pair = routes.pair[row * call.topk + slot];
    if (pair < 0) continue;
    const float weight = call.weights[row * call.topk + slot] * OUTPUT_FACTOR;
    const float* y = partial + (size_t)pair * call.hidden;
    for (int i = 0; i < call.hidden; ++i) out[i] += weight * y[i];
  }
}

}  // namespace
