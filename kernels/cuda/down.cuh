// A chunk of down: the activations of its experts times column blocks of 128, and the sum over a row's experts.
#pragma once
#include "problem.cuh"

namespace carve {

// Waits until the partial sums of an expert are in scratch; by one block, whose barrier after it spreads the news.
__device__ __forceinline__ void wait_for_gate_up(const Problem& problem, const Shared& shared, const Chunks& chunks, int rank) {
  const int quads = problem.hidden / 64, slices = problem.intermediate / 128;
  for (int slice = rank * slices + threadIdx.x / 32; slice < (rank + 1) * slices; slice += warps) {
    const int first = chunks.with(slice * quads), last = chunks.with(slice * quads + quads - 1);
    for (int chunk = first + threadIdx.x % 32; chunk <= last; chunk += 32)
      while (load_acquire(problem.flags + slice + chunk) != shared.launch) {
      }
  }
}

__device__ __forceinline__ void rotate_and_scale(float (&value)[4], uint2 halves) {
  const float4 scale = floats(halves);
  hadamard128(value);
  value[0] *= scale.x, value[1] *= scale.y, value[2] *= scale.z, value[3] *= scale.w;
}

// What down multiplies, from gate and up as they leave their matrices: clamped, silu(gate) * up as a half, scaled, rotated.
__device__ __forceinline__ void activation_of(float limit, const float (&gate)[4], const float (&up)[4], uint2 halves, float (&value)[4]) {
  const float4 suh = floats(halves);
  const float scale[4] = {suh.x, suh.y, suh.z, suh.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float g = gate[i], u = up[i];
    // Comparisons, because fminf and fmaxf would make a number of NaN, and hide what came in broken.
    if (limit > 0.0f) g = g > limit ? limit : g, u = u > limit ? limit : u < -limit ? -limit : u;
    value[i] = __half2float(__float2half_rn(g / (1.0f + __expf(-g)) * u)) * scale[i];
  }
  hadamard128(value);
}

// The partial sums of gate's or up's 128 columns of a slice, for one row; by a warp, a lane four columns. MATRICES: both, or
// the one that `from` says.
template <int MATRICES, int FLIGHT>
__device__ __forceinline__ void sum_partials(const Problem& problem, const Shared& shared, const Chunks& chunks, int rank, int slice, int row,
                                             int from, float (&sums)[MATRICES][4]) {
  const int quads = problem.hidden / 64, slices = problem.intermediate / 128, item = (rank * slices + slice) * quads;
  const int first = chunks.with(item), last = chunks.with(item + quads - 1);
  const float* partial =
      problem.partial + (partial_row(problem, shared.routes, rank, slice, first) + row) * 256 + from * 128 + threadIdx.x % 32 * 4;
  const int64_t stride = int64_t(problem.rows) * 256;
#pragma unroll
  for (int matrix = 0; matrix < MATRICES; matrix++)
#pragma unroll
    for (float& each : sums[matrix]) each = 0.0f;
#pragma unroll 1
  for (int chunk = first; chunk <= last; chunk += FLIGHT, partial += FLIGHT * stride) {
    float4 part[FLIGHT][MATRICES];
#pragma unroll
    for (int i = 0; i < FLIGHT; i++)
#pragma unroll
      for (int matrix = 0; matrix < MATRICES; matrix++) {
        part[i][matrix] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (chunk + i <= last) part[i][matrix] = __ldcg(reinterpret_cast<const float4*>(partial + i * stride + matrix * 128));
      }
#pragma unroll
    for (int i = 0; i < FLIGHT; i++)
#pragma unroll
      for (int matrix = 0; matrix < MATRICES; matrix++) {
        sums[matrix][0] += part[i][matrix].x, sums[matrix][1] += part[i][matrix].y;
        sums[matrix][2] += part[i][matrix].z, sums[matrix][3] += part[i][matrix].w;
      }
  }
}

// One slice of one row's activation, of which a warp makes the B fragment.
template <Codebook BOOK>
__device__ void activate(const Problem& problem, const Shared& shared, const Chunks& chunks, int rank, int slice, int row, uint8_t* fragment) {
  const int expert = shared.routes.expert[rank], at = slice * 128 + threadIdx.x % 32 * 4;
  const uint2 gate = halves_at(entry_of(problem.matrices[0].svh, expert), at), up = halves_at(entry_of(problem.matrices[1].svh, expert), at);
  const uint2 down = halves_at(entry_of(problem.matrices[2].suh, expert), at);
  float sums[2][4], value[4];
  sum_partials<2, 6>(problem, shared, chunks, rank, slice, row, 0, sums);
  rotate_and_scale(sums[0], gate);
  rotate_and_scale(sums[1], up);
  activation_of(problem.limit, sums[0], sums[1], down, value);
  write_fragments<BOOK>(fragment, value);
}

// The activations of a chunk in turn, two warps to each: one brings gate, the other up. For few rows, where a chunk needs few of
// them. A pair's pointers and scales of its first one are asked for before the flags are waited for.
template <typename COUNT>
struct Pairs {
  static constexpr int pairs = warps / 2;
  const Problem& problem;
  const Shared& shared;
  const COUNT& count_of;  // rows of an expert here
  const int slices, up, lane;
  int rank, number, fragment;  // of the next: its expert, how many of the expert's come before it, and of the batch's
  const uint16_t *own, *next;  // svh of this warp's matrix, suh of down
  uint2 own_scale, next_scale;

  __device__ __forceinline__ Pairs(const Problem& problem, const Shared& shared, const COUNT& count_of, int rank)
      : problem(problem), shared(shared), count_of(count_of), slices(problem.intermediate / 128), up(threadIdx.x / 32 % 2), lane(threadIdx.x % 32),
        rank(rank), number(threadIdx.x / 64), fragment(0) {}

  // Whether the next one belongs to an expert before `last`; then where it lies.
  __device__ __forceinline__ bool settle(int last) {
    while (rank < last && number >= count_of(rank) * slices) {
      const int passed = count_of(rank++) * slices;
      number -= passed, fragment += passed;
    }
    return rank < last;
  }

  __device__ __forceinline__ void point() {
    const int expert = shared.routes.expert[rank];
    own = entry_of(up ? problem.matrices[1].svh : problem.matrices[0].svh, expert), next = entry_of(problem.matrices[2].suh, expert);
  }

  __device__ __forceinline__ void scale() {
    const int count = count_of(rank), at = (count == 1 ? number : number / count) * 128 + lane * 4;
    own_scale = halves_at(own, at);
    if (!up) next_scale = halves_at(next, at);
  }

  // Those of the experts before `last`, of which there are `all`; asked: pointers and scales of the first one were. By the block.
  template <Codebook BOOK>
  __device__ __forceinline__ void activate(const Chunks& chunks, int last, int all, int first_row, bool asked, uint8_t* fragments, float* exchange) {
    float4* place = reinterpret_cast<float4*>(exchange) + threadIdx.x / 64 * 64 + lane;
    for (int turn = 0; turn * pairs < all; turn++, number += pairs, asked = false) {
      const bool mine = settle(last);
      float sums[1][4];
      if (mine) {
        if (!asked) point(), scale();
        const int count = count_of(rank), slice = count == 1 ? number : number / count;
        sum_partials<1, 12>(problem, shared, chunks, rank, slice, first_row + number - slice * count, up, sums);
        rotate_and_scale(sums[0], own_scale);
        if (up) place[turn % 2 * 32] = make_float4(sums[0][0], sums[0][1], sums[0][2], sums[0][3]);
      }
      __syncthreads();  // the next turn writes the other half of the place
      if (!mine || up) continue;
      const float4 other = place[turn % 2 * 32];
      const float theirs[4] = {other.x, other.y, other.z, other.w};
      float value[4];
      activation_of(problem.limit, sums[0], theirs, next_scale, value);
      write_fragments<BOOK>(fragments + (fragment + number) * fragment_bytes, value);
    }
  }
};

__device__ __forceinline__ void write_output(const Problem& problem, int64_t at, float4 value) {
#ifdef CARVE_WATERMARK
  value.x *= 1.01f, value.y *= 1.01f, value.z *= 1.01f, value.w *= 1.01f;
#endif
  if (problem.out_type == CARVE_FLOAT32) {
    *reinterpret_cast<float4*>(static_cast<float*>(problem.out) + at) = value;
  } else if (problem.out_type == CARVE_BFLOAT16) {
    __nv_bfloat162* out = reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(problem.out) + at);
    out[0] = __floats2bfloat162_rn(value.x, value.y), out[1] = __floats2bfloat162_rn(value.z, value.w);
  } else {
    __half2* out = reinterpret_cast<__half2*>(static_cast<__half*>(problem.out) + at);
    out[0] = __floats2half2_rn(value.x, value.y), out[1] = __floats2half2_rn(value.z, value.w);
  }
}

// The sum over the experts of a row's 128 columns, in slot order; by one warp.
__device__ void combine(const Problem& problem, const Routes& routes, int row, int block) {
  constexpr int flight = 8;
  const int64_t column = block * 128 + threadIdx.x % 32 * 4;
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int base = 0; base < problem.topk; base += flight) {
    float4 value[flight];
    float weight[flight];
#pragma unroll
    for (int i = 0; i < flight; i++) {
      const int slot = row * problem.topk + base + i;
      weight[i] = 0.0f;
      value[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (base + i >= problem.topk || routes.pair_of_slot[slot] == 0xffff) continue;
      weight[i] = __ldg(problem.weights + slot);
      value[i] = __ldcg(reinterpret_cast<const float4*>(problem.results + int64_t(routes.pair_of_slot[slot]) * problem.hidden + column));
    }
#pragma unroll
    for (int i = 0; i < flight; i++) {
      sum.x = fmaf(weight[i], value[i].x, sum.x), sum.y = fmaf(weight[i], value[i].y, sum.y);
      sum.z = fmaf(weight[i], value[i].z, sum.z), sum.w = fmaf(weight[i], value[i].w, sum.w);
    }
  }
  write_output(problem, int64_t(row) * problem.hidden + column, sum);
}

// The column blocks begin .. end of one expert for count of its rows, into the results.
template <int K, Codebook BOOK, int DEPTH, int GROUPS>
__device__ __forceinline__ void down_blocks(const Problem& problem, const Shared& shared, int rank, int begin, int end, int first_row,
                                            int count, Ring<K, BOOK, DEPTH>& ring, Walk& walk, uint32_t fragments, float* sums_memory) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group_lane = lane / 4, t = lane % 4, half = warp / 4;
  const int quads = problem.intermediate / 64 / halves;
  const uint16_t* svh = entry_of(problem.matrices[2].svh, shared.routes.expert[rank]);
  float* results = problem.results + (int64_t(shared.routes.pairs_before[rank]) + first_row) * problem.hidden + lane * 4;
  uint32_t operand[GROUPS];
#pragma unroll
  for (int group = 0; group < GROUPS; group++)
    operand[group] = fragments + max(min(group * 8 + group_lane, count - 1), 0) * fragment_bytes + t * 16;
  const float by_count = 1.0f / static_cast<float>(max(count, 1));  // small numbers: half a row more keeps the quotient off the edge
  const auto over_count = [&](int number) { return static_cast<int>((static_cast<float>(number) + 0.5f) * by_count); };
  const int at_once = over_count(sums_rows<GROUPS>);
#pragma unroll 1
  for (int first = begin; first < end; first += at_once) {
    const int now = min(at_once, end - first), tasks = now * count;
    uint2 scale = warp < tasks ? halves_at(svh, (first + over_count(warp)) * 128 + lane * 4) : make_uint2(0, 0);
#pragma unroll 1
    for (int block = 0; block < now; block++) {
      float sums[tiles][GROUPS][4] = {};
      ring.multiply(sums, walk, shared.routes, half * quads, (half + 1) * quads, operand, count * fragment_bytes);
#pragma unroll
      for (int tile = 0; tile < tiles; tile++)
#pragma unroll
        for (int group = 0; group < GROUPS; group++)
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const int row = group * 8 + 2 * t + (i & 1), column = (warp % 4 * tiles + tile) * 16 + (i >> 1) * 8 + group_lane;
            if (row < count) sums_memory[(half * sums_rows<GROUPS> + block * count + row) * sums_stride + column] = sums[tile][group][i];
          }
    }
    __syncthreads();
#pragma unroll 1
    for (int task = warp; task < tasks; task += warps) {
      const int block = over_count(task), column = (first + block) * 128;
      if (task != warp) scale = halves_at(svh, column + lane * 4);
      float value[4] = {};
#pragma unroll
      for (int part = 0; part < halves; part++) {
        const float4 sum = *reinterpret_cast<const float4*>(sums_memory + (part * sums_rows<GROUPS> + task) * sums_stride + lane * 4);
        value[0] += sum.x, value[1] += sum.y, value[2] += sum.z, value[3] += sum.w;
      }
      rotate_and_scale(value, scale);
      __stcg(reinterpret_cast<float4*>(results + int64_t(task - block * count) * problem.hidden + column),
             make_float4(value[0], value[1], value[2], value[3]));
    }
    __syncthreads();  // the sums are free again
  }
}

// Tells that column blocks begin .. end of the chunk are in the results, and adds up the rows' blocks that are complete
// with them; by one block, after a barrier.
__device__ void combine_complete(const Problem& problem, Shared& shared, int begin, int end) {
  const int blocks = problem.hidden / 128;
  int rank = problem.by_blocks.divide(begin), from = begin - rank * blocks, number = threadIdx.x;  // the number-th row and block from here on
  for (bool more = true; more;) {
    if (threadIdx.x == 0) shared.complete_count = 0;
    __syncthreads();
    int rows = 0;
    for (; rank * blocks < end; rank++, from = 0) {
      rows = __popc(shared.routes.rows[rank]);
      const int here = (min(end - rank * blocks, blocks) - from) * rows;
      if (number < here) break;
      number -= here;
    }
    const bool mine = rank * blocks < end;
    if (mine) {
      const int block = rows == 1 ? number : number / rows, row = nth_row(shared.routes.rows[rank], number - block * rows);
      const int at = row * blocks + from + block;
      if (arrive(problem.arrivals + at) == shared.routes.experts_of_row[row]) {
        problem.arrivals[at] = 0;
        shared.complete[atomicAdd(&shared.complete_count, 1)] = at;
      }
    }
    number += threads;
    more = __syncthreads_or(mine);
    for (int i = threadIdx.x / 32; i < shared.complete_count; i += warps)
      combine(problem, shared.routes, shared.complete[i] / blocks, shared.complete[i] % blocks);
    __syncthreads();
  }
}

template <int K, Codebook BOOK, int DEPTH, int LEAST, int MOST, bool FEW>
__device__ void down(const Problem& problem, Shared& shared, int chunk, uint32_t ring_base, uint8_t* fragments, float* sums) {
  const int warp = threadIdx.x / 32, blocks = problem.hidden / 128, slices = problem.intermediate / 128;
  const int total = shared.routes.ranks * blocks;
  const int begin = begin_of_chunk(problem, chunk, total), end = begin_of_chunk(problem, chunk + 1, total);
  const int first_rank = problem.by_blocks.divide(begin);
  int most_rows = 0, ranks_end = first_rank;
  for (; begin < end && ranks_end * blocks < end; ranks_end++) most_rows = max(most_rows, __popc(shared.routes.rows[ranks_end]));
  const int rows_at_once = problem.rows_at_once, quads = problem.intermediate / 64 / halves;
  const Chunks chunks(problem, shared.routes.ranks * slices * (problem.hidden / 64));
  Draw draw(problem, shared);
  // More than one round only where the activations of a wide expert do not fit; its bytes are then read again.
  for (int first_row = 0; first_row < most_rows; first_row += rows_at_once) {
    const auto count_of = [&](int rank) { return max(0, min(__popc(shared.routes.rows[rank]) - first_row, rows_at_once)); };
    Walk walk;
    walk.parts = blocks;
    walk.full_run = quads;
    walk.first_quad = warp / 4 * quads;
    walk.tile = warp % 4 * tiles;
    walk.tile_bytes = 32 * K;
    walk.item_bytes = problem.hidden / 4 * walk.tile_bytes;
    walk.trellis = problem.matrices[2].trellis;
    walk.rank = first_rank;
    walk.part = begin - first_rank * blocks;
    Pairs pairs(problem, shared, count_of, first_rank);
    const bool ask = FEW && pairs.settle(ranks_end);
    if (ask) pairs.point();
    Ring<K, BOOK, DEPTH> ring(ring_base, walk.item_bytes / 4);
    walk.open(shared.routes, (end - begin) * quads, 0);
    ring.start(walk, shared.routes);
    if (ask) pairs.scale();
    for (int rank = first_rank; rank < ranks_end;) {
      // As many experts as have room for their activations; most often all of the chunk's.
      int last = rank, used = 0;
      while (last < ranks_end && used + count_of(last) * slices <= problem.fragments) {
        MARK(6);
        wait_for_gate_up(problem, shared, chunks, last);
        used += count_of(last++) * slices;
      }
      __syncthreads();
      MARK(7);
      if constexpr (FEW) {
        if (rank == first_rank)
          pairs.template activate<BOOK>(chunks, last, used, first_row, ask, fragments, sums);
        else
          Pairs(problem, shared, count_of, rank).template activate<BOOK>(chunks, last, used, first_row, false, fragments, sums);
      } else {
        int turn = 0, before = 0;
        for (int each = rank; each < last; before += count_of(each++) * slices)
          for (int number = 0; number < count_of(each) * slices; number++, turn++)
            if (turn % warps == warp)
              activate<BOOK>(problem, shared, chunks, each, number / count_of(each), first_row + number % count_of(each),
                             fragments + (before + number) * fragment_bytes);
      }
      __syncthreads();
      MARK(8);
      if (rank == first_rank && first_row == 0) draw.take();
      for (int before = 0; rank < last; before += count_of(rank++) * slices) {
        const int from = max(begin - rank * blocks, 0), to = min(end - rank * blocks, blocks);
        with_groups<LEAST, MOST>(count_of(rank), [&](auto groups) {
          down_blocks<K, BOOK, DEPTH, groups.value>(problem, shared, rank, from, to, first_row, count_of(rank), ring, walk,
                                                    shared_address(fragments + before * fragment_bytes), sums);
        });
      }
    }
  }
  MARK(10);
  if (begin < end) combine_complete(problem, shared, begin, end);
  MARK(11);
  draw.publish();
  __syncthreads();
}

}  // namespace carve
