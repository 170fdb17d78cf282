/* The ticket schedule: each expert's weights are decoded once for all its rows.
 *
 *   ticket 0 ...            gate and up, expert e, block b of 128 intermediate columns  -> activation, ready for down
 *   then                    down, expert e, block c of 128 hidden columns               -> partial outputs of e's pairs
 *   then                    combine of one row
 *
 * A thread takes the next ticket from one counter; a down ticket waits for the gate/up blocks of its own expert and a
 * combine ticket for all down tickets. What is waited for has always been taken before, so the schedule cannot lock up
 * with any number of threads. Which thread ran a ticket changes no number: results are bitwise repeatable.
 */
#pragma once
#include "routed.h"

/* Input tiles of the down projection that are used; a faulty demonstration build leaves some out. */
#ifndef CARVE_DOWN_TILES
#define CARVE_DOWN_TILES(call, tiles) (tiles)
#endif

namespace {

struct Workspace {
  float *x, *sums, *w, *gate, *up; /* of one thread */
};

inline int forward_by_tickets(const carve_moe_call& call) {
  Scratch& scratch = Scratch::of_this_thread();
  if (call.rows == 0) return CARVE_OK;
  const int gate_blocks = call.intermediate / BLOCK, down_blocks = call.hidden / BLOCK;
  const int widest = call.hidden > call.intermediate ? call.hidden : call.intermediate;
  const int threads = thread_count(call.parallel);

  const size_t routes_at = scratch.piece(routes_bytes(call));
  if (!scratch.reserve()) return CARVE_DECLINE_NOT_READY;
  const Routes planned = plan_routes(call, scratch.at<int>(routes_at));
  const size_t most = (size_t)planned.most;

  /* Growing the block keeps nothing, so the plan is made again in the final block. */
  const size_t done_at = scratch.piece(sizeof(int) * ((size_t)planned.experts + 32));
  const size_t down_at = scratch.piece(sizeof(float) * (size_t)planned.pairs * call.intermediate);
  const size_t partial_at = scratch.piece(sizeof(float) * (size_t)planned.pairs * call.hidden);
  size_t at[MAX_THREADS][5];
  for (int t = 0; t < threads; ++t) {
    at[t][0] = scratch.piece(sizeof(float) * most * widest);
    at[t][1] = scratch.piece(sizeof(float) * most * COLUMN_SUMS);
    at[t][2] = scratch.piece(sizeof(float) * CHUNK_TILES * TILE_WEIGHTS);
    at[t][3] = scratch.piece(sizeof(float) * most * BLOCK);
    at[t][4] = scratch.piece(sizeof(float) * most * BLOCK);
  }
  if (!scratch.reserve()) return CARVE_DECLINE_NOT_READY;
  const Routes routes = plan_routes(call, scratch.at<int>(routes_at));
  int* next = scratch.at<int>(done_at);
  int* all_down = next + 16;
  int* gate_done = next + 32; /* [experts] */
  memset(next, 0, sizeof(int) * ((size_t)routes.experts + 32));
  float* down_inputs = scratch.at<float>(down_at);
  float* partial = scratch.at<float>(partial_at);

  const int gate_tickets = routes.experts * gate_blocks, down_tickets = routes.experts * down_blocks;
  on_all_threads(call.parallel, [&](int thread) {
    const size_t* mine = at[thread];
    const Workspace my = {scratch.at<float>(mine[0]), scratch.at<float>(mine[1]), scratch.at<float>(mine[2]),
                          scratch.at<float>(mine[3]), scratch.at<float>(mine[4])};
    for (;;) {
      int ticket = take(next);
      if (ticket < gate_tickets) {
        const int e = ticket / gate_blocks, column = ticket % gate_blocks * BLOCK;
        const int first = routes.first[e], rows = routes.first[e + 1] - first;
        const carve_expert& expert = call.table[routes.expert[e]];
        for (int side = 0; side < 2; ++side) {
          const carve_matrix& m = side ? expert.up : expert.gate;
          for (int r = 0; r < rows; ++r)
            prepare_row<true>(call.x + (size_t)routes.row[first + r] * call.hidden, m,
                              my.x + (size_t)r * call.hidden);
          multiply_columns(m, call.hidden / TILE, my.x, (size_t)call.hidden, rows, column, BLOCK,
                           side ? my.up : my.gate, BLOCK, my.sums, my.w);
        }
        for (int r = 0; r < rows; ++r) {
          float *gate = my.gate + r * BLOCK, *up = my.up + r * BLOCK;
          transform_output(gate, expert.gate.svh + column);
          transform_output(up, expert.up.svh + column);
          activate(gate, up, call.limit);
          transform_input(gate, expert.down.suh + column, up);
          to_kernel_order(up, down_inputs + (size_t)(first + r) * call.intermediate + column);
        }
        finish(gate_done + e);
        continue;
      }
      ticket -= gate_tickets;
      if (ticket < down_tickets) {
        const int e = ticket / down_blocks, column = ticket % down_blocks * BLOCK;
        const int first = routes.first[e], rows = routes.first[e + 1] - first;
        const carve_matrix& m = call.table[routes.expert[e]].down;
        wait_for(gate_done + e, gate_blocks);
        float* y = partial + (size_t)first * call.hidden + column;
        multiply_columns(m, CARVE_DOWN_TILES(call, call.intermediate / TILE),
                         down_inputs + (size_t)first * call.intermediate, (size_t)call.intermediate, rows, column,
                         BLOCK, y, (size_t)call.hidden, my.sums, my.w);
        for (int r = 0; r < rows; ++r) transform_output(y + (size_t)r * call.hidden, m.svh + column);
        finish(all_down);
        continue;
      }
      ticket -= down_tickets;
      if (ticket >= call.rows) return;
      wait_for(all_down, down_tickets);
      combine_row(call, routes, partial, ticket);
    }
  });
  return CARVE_OK;
}

}  // namespace
