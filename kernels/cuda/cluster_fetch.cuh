// How the bytes and scales of a cluster's items come into the shared memory of a block, ahead of those who decode. Read
// cluster.cuh first.
#pragma once
#include "cluster_plan.cuh"

namespace carve {

// What every part of the kernel knows.
struct ClusterBlock {
  const ClusterProblem& call;
  const Problem& problem;
  const ClusterLayout& at;
  uint8_t* memory;
  ClusterShared& shared;
  const uint32_t base;  // of memory
  const int warp, lane, rank, slices;

  __device__ __forceinline__ ClusterBlock(const ClusterProblem& call, uint8_t* memory)
      : call(call), problem(call.problem), at(call.at), memory(memory), shared(*reinterpret_cast<ClusterShared*>(memory)),
        base(shared_address(memory)), warp(threadIdx.x / 32), lane(threadIdx.x % 32), rank(rank_in_cluster()),
        slices(call.problem.intermediate / 128) {}

  __device__ __forceinline__ uint32_t barrier(const uint64_t& one) const {
    return base + static_cast<uint32_t>(reinterpret_cast<const uint8_t*>(&one) - memory);
  }

  __device__ __forceinline__ const uint16_t* scales(int item) const {
    return reinterpret_cast<const uint16_t*>(memory + at.scales_at + item % at.scale_slots * at.scale_bytes);
  }

  // This warp has arrived.
  __device__ __forceinline__ void tell(const uint64_t& one) const {
    __syncwarp();
    if (lane == 0) barrier_arrive(barrier(one));
  }

  // The block's share of an item's gate and up, inputs / 16 rows of tiles each: the first-th copy and every stride-th after.
  __device__ __forceinline__ void fetch_gate_up(int item, int first, int stride) const {
    const int slot = item % at.gate_up_slots, rows = at.inputs / 16, half = rows / 2;
    const uint32_t bytes = at.gate_row - 32, to = base + at.gate_up_at + slot * at.gate_up_bytes;
    if (first < 2) barrier_expect(barrier(shared.gate_up[slot][first]), rows * bytes);
    for (int number = first; number < 2 * rows; number += stride) {
      const int part = number / rows, matrix = number / half % 2, row = part * half + number % half;
      const uint16_t* trellis = entry_of(matrix ? problem.matrices[1].trellis : problem.matrices[0].trellis, shared.items[item].expert);
      const uint8_t* from = reinterpret_cast<const uint8_t*>(trellis) + uint64_t(rank * rows + row) * bytes;
      copy_bulk(to + (matrix * rows + row) * at.gate_row, from, bytes, barrier(shared.gate_up[slot][part]));
    }
  }

  // The block's columns of an item's down; by one warp.
  __device__ __forceinline__ void fetch_down(int item) const {
    const int slot = item % at.down_slots, rows = problem.intermediate / 16;
    const uint32_t bytes = at.down_row - 32, done = barrier(shared.down[slot]), to = base + at.down_at + slot * at.down_bytes;
    if (lane == 0) barrier_expect(done, rows * bytes);
    const uint8_t* trellis = reinterpret_cast<const uint8_t*>(entry_of(problem.matrices[2].trellis, shared.items[item].expert));
    for (int row = lane; row < rows; row += 32)
      copy_bulk(to + row * at.down_row, trellis + (uint64_t(row) * cluster_size + rank) * bytes, bytes, done);
  }

  // The scales of an item before its results: suh of gate and up for the block's inputs, svh of gate and up, suh of down.
  // By one warp, four halves at a time.
  __device__ __forceinline__ void fetch_scales(int item) const {
    const int expert = shared.items[item].expert, inputs = at.inputs / 4, inner = problem.intermediate / 4;
    const uint32_t to = base + at.scales_at + item % at.scale_slots * at.scale_bytes;
    for (int number = lane; number < 2 * inputs + 3 * inner; number += 32) {
      int piece = number;
      Table table = problem.matrices[0].suh;
      int first = rank * inputs;
      if (piece >= inputs) piece -= inputs, table = problem.matrices[1].suh;
      if (number >= 2 * inputs) {
        first = 0, piece = number - 2 * inputs, table = problem.matrices[0].svh;
        if (piece >= inner) piece -= inner, table = problem.matrices[1].svh;
        if (number >= 2 * inputs + 2 * inner) piece -= inner, table = problem.matrices[2].suh;
      }
      copy_8(to + number * 8, entry_of(table, expert) + (first + piece) * 4);
    }
    copy_commit();
    copy_wait<0>();
    tell(shared.scales[item % at.scale_slots]);
  }

  // Everything that the items need, as early as there is room; by one warp. Bytes of the first gate and up were asked for
  // before. A slot of scales is free when one of gate and up is: it has two more.
  __device__ __forceinline__ void fetch_all() const {
    for (int item = 0; item <= shared.count; item++) {
      if (item < shared.count) {
        const int slot = item % at.gate_up_slots, use = item / at.gate_up_slots;
        if (use > 0) barrier_wait(barrier(shared.gate_up_read[slot]), (use - 1) & 1);
        if (item > 0) fetch_gate_up(item, lane, 32);
        fetch_scales(item);
      }
      if (item > 0) {
        const int slot = (item - 1) % at.down_slots, use = (item - 1) / at.down_slots;
        if (use > 0) barrier_wait(barrier(shared.down_read[slot]), (use - 1) & 1);
        fetch_down(item - 1);
      }
    }
  }
};

}  // namespace carve
