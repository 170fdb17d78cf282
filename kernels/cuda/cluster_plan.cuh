// What a cluster's blocks agree on before they start: items, shared memory, and which item is whose. Read cluster.cuh first.
#pragma once
#include "down.cuh"

#ifndef CARVE_CLUSTER
#define CARVE_CLUSTER 16
#endif

namespace carve {

constexpr int cluster_size = CARVE_CLUSTER;
// Warps of a block: most decode, one makes activations, one fetches, the others shape: inputs before, results after.
constexpr int decoders = 16, shapers = 4, activating_warp = decoders, fetching_warp = decoders + 1, first_shaper = decoders + 2;
constexpr int cluster_warps = first_shaper + shapers, cluster_threads = cluster_warps * 32;
constexpr int most_slots = 3, most_scale_slots = most_slots + 2;

struct Item {
  uint32_t rows;  // bit r: row r, item_rows bits at most
  uint32_t expert;
};

// Barriers; a pair is for even and odd items. Bytes come by copies, or by stores of other blocks.
struct ClusterBarriers {
  alignas(8) uint64_t gate_up[most_slots][2];  // bytes of the trellis, of the first and second half of the inputs
  uint64_t down[most_slots], partial[2], activation[2];
  uint64_t scales[most_scale_slots];                         // one arrival: the scales of an item are there
  uint64_t gate_up_read[most_slots], down_read[most_slots];  // from here on every decoder arrives
  uint64_t fragments_read[2], sums_ready[2];
  uint64_t fragments_ready[2], sums_read[2];                 // from here on every shaper

  __device__ static int arrivals_at(int number) {
    constexpr int by_all = offsetof(ClusterBarriers, gate_up_read) / 8, by_shapers = offsetof(ClusterBarriers, fragments_ready) / 8;
    return number < by_all ? 1 : number < by_shapers ? decoders : shapers;
  }
};
constexpr int cluster_barriers = sizeof(ClusterBarriers) / 8;

struct ClusterShared : ClusterBarriers {
  Item items[max_ranks];               // of this cluster
  int16_t ids[max_ranks];              // of every slot; -1: not on this rank
  uint8_t first_slot[max_ranks];       // of the row with the same id
  uint32_t warp_total[cluster_warps];
  int count, participants, last;
};

struct PlanWork {  // lies where the input fragments will
  uint32_t first[CARVE_CUDA_MAX_EXPERTS];  // slot that names the expert first
  uint32_t rows[CARVE_CUDA_MAX_EXPERTS];
};

// The shared memory of a block; offsets in bytes.
struct ClusterLayout {
  int inputs, columns;         // of a block: of gate and up, of down
  int item_rows;
  int gate_row, down_row;      // a row of tiles; 32 bytes more keep the four tiles of a quad on different banks
  int gate_up_slots, down_slots, scale_slots;
  int gate_up_bytes, down_bytes, scale_bytes, partial_bytes, activation_bytes, fragments_bytes, sums_bytes;  // of a slot
  int gate_up_at, down_at, scales_at, x_at, fragments_at, activations_at, partial_at, sums_at, sums_stride, total;
};

__host__ inline ClusterLayout cluster_layout(int bits, int rows, int hidden, int intermediate, int available) {
  ClusterLayout at = {};
  const int slices = intermediate / 128;
  at.inputs = at.columns = hidden / cluster_size;
  at.gate_row = intermediate / 16 * 32 * bits + 32;
  at.down_row = at.columns / 16 * 32 * bits + 32;
  at.gate_up_bytes = align_up(2 * at.inputs / 16 * at.gate_row);
  at.down_bytes = align_up(intermediate / 16 * at.down_row);
  at.scale_bytes = align_up((2 * at.inputs + 3 * intermediate) * 2);
  at.sums_stride = at.columns + 4;
  constexpr struct {
    int rows, gate_up, down;
  } wanted[] = {{8, 3, 2}, {8, 2, 2}, {8, 2, 1}, {4, 2, 1}, {8, 1, 1}, {4, 1, 1}};  // of an item, and slots
  for (const auto& one : wanted) {
    const int most = rows < one.rows ? rows : one.rows;
    at.item_rows = one.rows, at.gate_up_slots = one.gate_up, at.down_slots = one.down;
    at.scale_slots = one.gate_up + 2;  // read until the turn after the item's own has ended
    at.partial_bytes = (most * slices + cluster_size - 1) / cluster_size * cluster_size * 1024;
    at.activation_bytes = align_up(most * slices * fragment_bytes);
    at.fragments_bytes = align_up(most * 2 * (at.inputs / 128) * fragment_bytes);
    at.sums_bytes = align_up(most * at.sums_stride * 4);
    const int fragments = 2 * at.fragments_bytes, work = sizeof(PlanWork);
    at.x_at = align_up(sizeof(ClusterShared));
    at.fragments_at = at.x_at + align_up(rows * at.inputs * 2);
    at.activations_at = at.fragments_at + align_up(fragments > work ? fragments : work);
    at.partial_at = at.activations_at + 2 * at.activation_bytes;
    at.sums_at = at.partial_at + 2 * at.partial_bytes;
    at.scales_at = at.sums_at + 2 * at.sums_bytes;
    at.gate_up_at = at.scales_at + at.scale_slots * at.scale_bytes;
    at.down_at = at.gate_up_at + at.gate_up_slots * at.gate_up_bytes;
    at.total = at.down_at + at.down_slots * at.down_bytes;
    if (at.total <= available) return at;
  }
  at.total = 0;
  return at;
}

struct ClusterProblem {
  Problem problem;  // arrivals: one of each rank in a cluster; results: [rows, topk, hidden]
  ClusterLayout at;
  int clusters;
};

// Which items there are, and which of them are this cluster's; by all threads of a block, ends with a barrier.
__device__ __forceinline__ void plan_items(const ClusterProblem& call, ClusterShared& shared, PlanWork& work, int id) {
  const Problem& problem = call.problem;
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, row = thread / problem.topk;
  const bool valid = id >= 0 && id < problem.experts;
  for (int i = thread; i < CARVE_CUDA_MAX_EXPERTS; i += cluster_threads) work.first[i] = ~0u, work.rows[i] = 0;
  if (thread < max_ranks) shared.ids[thread] = valid ? id : -1;
  __syncthreads();
  if (valid) {
    atomicMin(&work.first[id], static_cast<uint32_t>(thread));
    atomicOr(&work.rows[id], 1u << row);
  }
  __syncthreads();
  uint32_t rows = valid && work.first[id] == static_cast<uint32_t>(thread) ? work.rows[id] : 0;
  const int item_rows = call.at.item_rows, parts = (__popc(rows) + item_rows - 1) / item_rows;  // 0 to 8
  const uint32_t below = (1u << lane) - 1;
  int before = 0, all = 0;
#pragma unroll
  for (int bit = 0; bit < 4; bit++) {
    const uint32_t votes = __ballot_sync(0xffffffffu, parts >> bit & 1);
    before += __popc(votes & below) << bit, all += __popc(votes) << bit;
  }
  if (lane == 0) shared.warp_total[warp] = all;
  __syncthreads();
  all = 0;
  const int used = (problem.rows * problem.topk + 31) / 32;
  for (int other = 0; other < used; other++) {
    if (other < warp) before += shared.warp_total[other];
    all += shared.warp_total[other];
  }
  const int cluster = blockIdx.x / cluster_size;
  for (int part = 0; part < parts; part++, before++) {
    uint32_t mine = rows;
    for (int i = 0; i < item_rows && mine; i++) mine &= mine - 1;
    if (before % call.clusters == cluster) shared.items[before / call.clusters] = {rows & ~mine, static_cast<uint32_t>(id)};
    rows = mine;
  }
  if (thread == 0) {
    shared.count = all > cluster ? (all - cluster + call.clusters - 1) / call.clusters : 0;
    shared.participants = max(1, min(all, call.clusters));
  }
  __syncthreads();
}

}  // namespace carve
