/* incumbent: the plain way. For every (row, expert) pair each tile is decoded to floats and multiplied; threads share the
 * output blocks of a pair, with a barrier between gate/up and down. Calls of many rows (prefill) decode each expert once,
 * as the tickets do, so that serving is not held up. Also the linear, which all variants share. */
#define CARVE_NAME "incumbent"
#define CARVE_HAS_LINEAR
#define CARVE_MANY_ROWS 64
#define CARVE_TUNED "\"many_rows\":64"

#ifdef CARVE_ENTRY
#include "exports.h"
#else
#include "tickets.h"

namespace {

/* One block of 128 columns, tile by tile: decode, put in place, multiply. x in natural order. */
template <int K, int CODEBOOK>
__attribute__((noinline)) void plain_block(const carve_matrix& m, const float* x, int first_column, float* y) {
  for (int column = 0; column < BLOCK; column += TILE, y += TILE) {
    memset(y, 0, sizeof(float) * TILE);
    for (int row = 0; row < m.in_features; row += TILE) {
      float stream[TILE_WEIGHTS], w[TILE][TILE];
      plain_tile<K, CODEBOOK>(tile_at(m, row / TILE, (first_column + column) / TILE), stream);
      for (int lane = 0; lane < 32; ++lane)
        for (int half = 0; half < 2; ++half) {
          const float* four = stream + 8 * lane + 4 * half;
          float* place = &w[2 * (lane % 4)][lane / 4 + 8 * half];
          place[0] = four[0], place[TILE] = four[1], place[8 * TILE] = four[2], place[9 * TILE] = four[3];
        }
      for (int r = 0; r < TILE; ++r)
        for (int c = 0; c < TILE; ++c) y[c] += x[row + r] * w[r][c];
    }
  }
}

inline void plain_columns(const carve_matrix& m, const float* x, int first_column, float* y) {
  static void (*const table[8][3])(const carve_matrix&, const float*, int, float*) = CARVE_FORMATS(plain_block);
  table[m.bits - 1][m.codebook](m, x, first_column, y);
}

inline void plain_input(const float* x, const carve_matrix& m, float* turned) {
  alignas(64) float rounded[BLOCK];
  for (int b = 0; b < m.in_features; b += BLOCK) {
    for (int i = 0; i < BLOCK; ++i) rounded[i] = round_to_half(x[b + i]);
    transform_input(rounded, m.suh + b, turned + b);
  }
}

inline int forward_by_pairs(const carve_moe_call& call) {
  Scratch& scratch = Scratch::of_this_thread();
  if (call.rows == 0) return CARVE_OK;
  const size_t slots = (size_t)call.rows * call.topk;
  const size_t routes_at = scratch.piece(routes_bytes(call));
  const size_t inputs_at = scratch.piece(sizeof(float) * slots * 2 * call.hidden);
  const size_t down_at = scratch.piece(sizeof(float) * slots * call.intermediate);
  const size_t partial_at = scratch.piece(sizeof(float) * slots * call.hidden);
  if (!scratch.reserve()) return CARVE_DECLINE_NOT_READY;
  const Routes routes = plan_routes(call, scratch.at<int>(routes_at));
  float* inputs = scratch.at<float>(inputs_at); /* [pairs][gate, up][hidden] */
  float* down_inputs = scratch.at<float>(down_at);
  float* partial = scratch.at<float>(partial_at);
  const int gate_blocks = call.intermediate / BLOCK, down_blocks = call.hidden / BLOCK;

  for (int e = 0; e < routes.experts; ++e)
    for (int p = routes.first[e]; p < routes.first[e + 1]; ++p) {
      const carve_expert& expert = call.table[routes.expert[e]];
      const float* x = call.x + (size_t)routes.row[p] * call.hidden;
      plain_input(x, expert.gate, inputs + (size_t)p * 2 * call.hidden);
      plain_input(x, expert.up, inputs + ((size_t)p * 2 + 1) * call.hidden);
    }

  int next = 0;
  const auto expert_of = [&](int pair) -> const carve_expert& {
    int e = 0;
    while (routes.first[e + 1] <= pair) ++e;
    return call.table[routes.expert[e]];
  };
  on_all_threads(call.parallel, [&](int) {
    for (int ticket; (ticket = take(&next)) < routes.pairs * gate_blocks;) {
      const int pair = ticket / gate_blocks, column = ticket % gate_blocks * BLOCK;
      const carve_expert& expert = expert_of(pair);
      alignas(64) float gate[BLOCK], up[BLOCK];
      plain_columns(expert.gate, inputs + (size_t)pair * 2 * call.hidden, column, gate);
      plain_columns(expert.up, inputs + ((size_t)pair * 2 + 1) * call.hidden, column, up);
      transform_output(gate, expert.gate.svh + column);
      transform_output(up, expert.up.svh + column);
      activate(gate, up, call.limit);
      transform_input(gate, expert.down.suh + column, down_inputs + (size_t)pair * call.intermediate + column);
    }
  });
  next = 0;
  on_all_threads(call.parallel, [&](int) {
    for (int ticket; (ticket = take(&next)) < routes.pairs * down_blocks;) {
      const int pair = ticket / down_blocks, column = ticket % down_blocks * BLOCK;
      const carve_matrix& m = expert_of(pair).down;
      float* y = partial + (size_t)pair * call.hidden + column;
      plain_columns(m, down_inputs + (size_t)pair * call.intermediate, column, y);
      transform_output(y, m.svh + column);
    }
  });
  for (int row = 0; row < call.rows; ++row) combine_row(call, routes, partial, row);
  return CARVE_OK;
}

}  // namespace

extern "C" int CARVE_FORWARD(const carve_moe_call* call) {
  const int status = check_call(*call);
  if (status) return status;
  return call->rows >= CARVE_MANY_ROWS ? forward_by_tickets(*call) : forward_by_pairs(*call);
}

/* out = linear(x): blocks of 128 columns are the tickets, all rows share a decoded tile. float throughout. */
extern "C" int CARVE_LINEAR(const carve_linear_call* call) {
  Scratch& scratch = Scratch::of_this_thread();
  const carve_matrix& m = *call->matrix;
  const int status = check_matrix(m, m.in_features, m.out_features);
  if (status || call->rows < 0) return status ? status : CARVE_DECLINE_SHAPE;
  if (call->rows == 0) return CARVE_OK;
  const size_t rows = (size_t)call->rows;
  const int threads = thread_count(call->parallel);
  const size_t x_at = scratch.piece(sizeof(float) * rows * m.in_features);
  size_t sums_at[MAX_THREADS], w_at[MAX_THREADS];
  for (int t = 0; t < threads; ++t) {
    sums_at[t] = scratch.piece(sizeof(float) * rows * COLUMN_SUMS);
    w_at[t] = scratch.piece(sizeof(float) * CHUNK_TILES * TILE_WEIGHTS);
  }
  if (!scratch.reserve()) return CARVE_DECLINE_NOT_READY;
  float* x = scratch.at<float>(x_at);
  for (int r = 0; r < call->rows; ++r)
    prepare_row<false>(call->x + (size_t)r * m.in_features, m, x + (size_t)r * m.in_features);
  int next = 0;
  on_all_threads(call->parallel, [&](int thread) {
    for (int ticket; (ticket = take(&next)) < m.out_features / BLOCK;) {
      float* y = call->out + (size_t)ticket * BLOCK;
      multiply_columns(m, m.in_features / TILE, x, (size_t)m.in_features, call->rows, ticket * BLOCK, BLOCK, y,
                       (size_t)m.out_features, scratch.at<float>(sums_at[thread]), scratch.at<float>(w_at[thread]));
      for (int r = 0; r < call->rows; ++r)
        transform_output(y + (size_t)r * m.out_features, m.svh + ticket * BLOCK);
    }
  });
  return CARVE_OK;
}
#endif
