// Which experts a call needs and which rows go to each, worked out by every block for itself in shared memory.
#pragma once
#include "divide.cuh"

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

// The experts that this thread's slots name (thread, thread + THREADS, ...); -1: none on this rank.
template <int THREADS>
struct SlotIds {
  static constexpr int slots = max_ranks / THREADS;
  int id[slots];

  __device__ __forceinline__ SlotIds(const int32_t* ids, int rows, int topk) {
#pragma unroll
    for (int i = 0; i < slots; i++) {
      const int slot = threadIdx.x + i * THREADS;
      id[i] = slot < rows * topk ? ids[slot] : -1;
    }
  }
};

// By all threads of a block; ends with a barrier.
template <int THREADS>
__device__ void plan_routes(Routes& routes, RoutesWork& work, SlotIds<THREADS> chosen, int rows, int topk, int experts) {
  static_assert(CARVE_CUDA_MAX_EXPERTS % THREADS == 0 && max_ranks % THREADS == 0);
  constexpr int each = CARVE_CUDA_MAX_EXPERTS / THREADS, slots = SlotIds<THREADS>::slots;
  const int thread = threadIdx.x, lane = thread % 32;
  int(&id)[slots] = chosen.id;
#pragma unroll
  for (int i = 0; i < slots; i++)
    if (id[i] >= experts) id[i] = -1;
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

// The same for at most 32 slots, a lane for each; by one warp, ends with a barrier of the block. id: of this thread's slot.
__device__ __forceinline__ void plan_few_routes(Routes& routes, int id, int rows, int topk, Divisor by_topk, int experts) {
  static_assert(CARVE_CUDA_MAX_ROWS == 32, "a lane for each row");
  if (threadIdx.x < 32) {
    const int lane = threadIdx.x, slots = rows * topk, row = by_topk.divide(lane);
    if (id >= experts) id = -1;
    uint32_t same = 0, less = 0;  // slots that name the same expert, and one before it
    for (int first = 0; first < slots; first += 8)
#pragma unroll
      for (int i = first; i < first + 8; i++) {
        const int other = __shfl_sync(0xffffffffu, id, i);
        same |= other == id ? 1u << i : 0;
        less |= other >= 0 && other < id ? 1u << i : 0;
      }
    const uint32_t below = (1u << lane) - 1, slots_of_row = (1u << topk) - 1;
    const uint32_t same_before = same & below, rows_before = row < rows ? (1u << row * topk) - 1 : 0;
    const uint32_t leaders = __ballot_sync(0xffffffffu, id >= 0 && same_before == 0);
    const uint32_t pairs = __ballot_sync(0xffffffffu, id >= 0 && (same_before & ~rows_before) == 0);  // not named before in its row
    const int rank = __popc(less & leaders), pairs_before = __popc(less & pairs);
    if (lane == 0) routes.ranks = __popc(leaders);
    routes.experts_of_row[lane] = lane < rows ? __popc(pairs >> lane * topk & slots_of_row) : 0;
    if (lane < slots) routes.pair_of_slot[lane] = id < 0 ? 0xffff : pairs_before + __popc(same & pairs & rows_before);
    if (leaders >> lane & 1) {
      uint32_t chosen = 0;
      for (int other = 0; other < rows; other++) chosen |= (same >> other * topk & slots_of_row ? 1u : 0u) << other;
      routes.expert[rank] = id, routes.rows[rank] = chosen, routes.pairs_before[rank] = pairs_before;
    }
  }
  __syncthreads();
}

}  // namespace carve
