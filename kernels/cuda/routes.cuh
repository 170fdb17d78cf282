// Which experts a call needs and which rows go to each, worked out by every block for itself in shared memory.
#pragma once
#include "abi.h"

namespace carve {

constexpr int max_ranks = CARVE_CUDA_MAX_ROWS * CARVE_CUDA_MAX_TOPK;

// An expert that some row chose has a rank, in order of its id; a pair is a rank and one of its rows, in that order.
struct Routes {
  int ranks;
  uint16_t expert[max_ranks];
  uint32_t rows[max_ranks];           // bit r: row r chose it
  uint16_t pairs_before[max_ranks];
  uint16_t pair_of_slot[max_ranks];   // [rows, topk]; 0xffff: not on this rank
  uint32_t experts_of_row[CARVE_CUDA_MAX_ROWS];  // distinct ones
};

struct RoutesWork {  // may lie in memory that is used otherwise afterwards
  uint32_t rows[CARVE_CUDA_MAX_EXPERTS];
  uint16_t rank[CARVE_CUDA_MAX_EXPERTS];
  uint32_t warp_total[32];
};

__device__ __forceinline__ int nth_row(uint32_t rows, int n) {
  while (n--) rows &= rows - 1;
  return __ffs(rows) - 1;
}

// By all threads of a block; ends with a barrier.
template <int THREADS>
__device__ void plan_routes(Routes& routes, RoutesWork& work, const int32_t* ids, int rows, int topk, int experts) {
  static_assert(CARVE_CUDA_MAX_EXPERTS % THREADS == 0 && max_ranks % THREADS == 0);
  constexpr int each = CARVE_CUDA_MAX_EXPERTS / THREADS, slots = max_ranks / THREADS;
  const int thread = threadIdx.x, lane = thread % 32;
  int id[slots];
#pragma unroll
  for (int i = 0; i < slots; i++) {
    const int slot = thread + i * THREADS;
    id[i] = slot < rows * topk ? ids[slot] : -1;
    if (id[i] >= experts) id[i] = -1;
  }
#pragma unroll
  for (int i = 0; i < each; i++) work.rows[thread + i * THREADS] = 0;
  if (thread < CARVE_CUDA_MAX_ROWS) routes.experts_of_row[thread] = 0;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < slots; i++)
    if (id[i] >= 0) atomicOr(&work.rows[id[i]], 1u << ((thread + i * THREADS) / topk));
  __syncthreads();
  // A prefix sum over the experts of (ranks, pairs), both in one word.
  uint32_t mine[each], total = 0;
#pragma unroll
  for (int i = 0; i < each; i++) {
    mine[i] = work.rows[thread * each + i];
    total += (mine[i] != 0 ? 1u << 16 : 0) + __popc(mine[i]);
  }
  uint32_t before = total;
#pragma unroll
  for (int stride = 1; stride < 32; stride *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, before, stride);
    if (lane >= stride) before += other;
  }
  if (lane == 31) work.warp_total[thread / 32] = before;
  before -= total;
  __syncthreads();
  uint32_t all = 0;
#pragma unroll
  for (int warp = 0; warp < THREADS / 32; warp++) {
    if (warp < thread / 32) before += work.warp_total[warp];
    all += work.warp_total[warp];
  }
  if (thread == 0) routes.ranks = all >> 16;
#pragma unroll
  for (int i = 0; i < each; i++) {
    if (mine[i] == 0) continue;
    const int rank = before >> 16;
    work.rank[thread * each + i] = rank;
    routes.expert[rank] = thread * each + i;
    routes.rows[rank] = mine[i];
    routes.pairs_before[rank] = before & 0xffff;
    before += (1u << 16) + __popc(mine[i]);
    for (uint32_t left = mine[i]; left; left &= left - 1) atomicAdd(&routes.experts_of_row[__ffs(left) - 1], 1u);
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < slots; i++) {
    const int slot = thread + i * THREADS, row = slot / topk;
    if (slot >= rows * topk) continue;
    int pair = 0xffff;
    if (id[i] >= 0) {
      const int rank = work.rank[id[i]];
      pair = routes.pairs_before[rank] + __popc(routes.rows[rank] & ((1u << row) - 1));
    }
    routes.pair_of_slot[slot] = pair;
  }
  __syncthreads();
}

#ifdef CARVE_FEW
// The same for at most 32 slots, by one warp in its registers; ends with a barrier of the block.
template <int THREADS>
__device__ void plan_few_routes(Routes& routes, const int32_t* ids, int rows, int topk, int experts) {
  static_assert(CARVE_CUDA_MAX_ROWS == 32, "a lane for each row");
  if (threadIdx.x < 32) {
    const int lane = threadIdx.x, slots = rows * topk, row = lane / topk;
    int id = lane < slots ? ids[lane] : -1;
    if (id >= experts) id = -1;
    uint32_t chosen = 0;  // rows that name the same expert
    int first = 32;
    for (int other = slots - 1; other >= 0; other--)
      if (__shfl_sync(0xffffffffu, id, other) == id) chosen |= 1u << other / topk, first = other;
    const uint32_t leaders = __ballot_sync(0xffffffffu, id >= 0 && first == lane);
    int rank = 0, pairs_before = 0, experts_of_row = 0;
    for (uint32_t left = leaders; left; left &= left - 1) {
      const int leader = __ffs(left) - 1;
      const uint32_t theirs = __shfl_sync(0xffffffffu, chosen, leader);
      if (__shfl_sync(0xffffffffu, id, leader) < id) rank++, pairs_before += __popc(theirs);
      experts_of_row += theirs >> lane & 1;
    }
    routes.experts_of_row[lane] = experts_of_row;
    if (lane == 0) routes.ranks = __popc(leaders);
    if (leaders >> lane & 1) routes.expert[rank] = id, routes.rows[rank] = chosen, routes.pairs_before[rank] = pairs_before;
    if (lane < slots) routes.pair_of_slot[lane] = id < 0 ? 0xffff : pairs_before + __popc(chosen & ((1u << row) - 1));
  }
  __syncthreads();
}
#endif

}  // namespace carve
