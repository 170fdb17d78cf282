// A chunk of down: the activations of its experts times column blocks of 128, and the sum over a row's experts.
#pragma once
#include "problem.cuh"

namespace carve {

// Waits until the partial sums of an expert are in scratch; by one block, whose barrier after it spreads the news.
__device__ void wait_for_gate_up(const Problem& problem, const Shared& shared, int rank) {
  const int quads = problem.hidden / 64, slices = problem.intermediate / 128, total = shared.routes.ranks * slices * quads;
  for (int slice = rank * slices + threadIdx.x / 32; slice < (rank + 1) * slices; slice += warps) {
    const int first = chunk_of(slice * quads, total, problem.chunks), last = chunk_of(slice * quads + quads - 1, total, problem.chunks);
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

// What an activation is scaled by: four columns of gate's and up's svh, four inputs of down's suh.
struct ActivationScales {
  uint2 gate, up, down;
};

__device__ __forceinline__ ActivationScales scales_of(const Problem& problem, int expert, int at) {
  return {halves_at(entry_of(problem.matrices[0].svh, expert), at), halves_at(entry_of(problem.matrices[1].svh, expert), at),
          halves_at(entry_of(problem.matrices[2].suh, expert), at)};
}

// What down multiplies, from the sums of gate and up: rotated, clamped, silu(gate) * up as a half, scaled, rotated.
__device__ __forceinline__ void activation_of(const Problem& problem, float (&gate)[4], float (&up)[4], const ActivationScales& scales,
                                              float (&value)[4]) {
  rotate_and_scale(gate, scales.gate);
  rotate_and_scale(up, scales.up);
  const float4 suh = floats(scales.down);
  const float scale[4] = {suh.x, suh.y, suh.z, suh.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float g = gate[i], u = up[i];
    if (problem.limit > 0.0f) g = fminf(g, problem.limit), u = fminf(fmaxf(u, -problem.limit), problem.limit);
    value[i] = __half2float(__float2half_rn(g / (1.0f + __expf(-g)) * u)) * scale[i];
  }
  hadamard128(value);
}

// One slice of one row's activation, of which a warp makes the B fragment.
template <Codebook BOOK>
__device__ void activate(const Problem& problem, const Shared& shared, int rank, int slice, int row, uint8_t* fragment) {
  constexpr int flight = 6;
  const int quads = problem.hidden / 64, slices = problem.intermediate / 128, total = shared.routes.ranks * slices * quads;
  const int lane = threadIdx.x % 32, item = (rank * slices + slice) * quads;
  const int first = chunk_of(item, total, problem.chunks), last = chunk_of(item + quads - 1, total, problem.chunks);
  const float* partial = problem.partial + (partial_row(problem, shared.routes, rank, slice, first) + row) * 256 + lane * 4;
  const int64_t stride = int64_t(problem.rows) * 256;
  const ActivationScales scales = scales_of(problem, shared.routes.expert[rank], slice * 128 + lane * 4);
  float gate[4] = {}, up[4] = {};
  for (int chunk = first; chunk <= last; chunk += flight) {
    float4 g[flight], u[flight];
#pragma unroll
    for (int i = 0; i < flight; i++) {
      g[i] = u[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (chunk + i > last) continue;
      g[i] = __ldcg(reinterpret_cast<const float4*>(partial + i * stride));
      u[i] = __ldcg(reinterpret_cast<const float4*>(partial + i * stride + 128));
    }
    partial += flight * stride;
#pragma unroll
    for (int i = 0; i < flight; i++) {
      gate[0] += g[i].x, gate[1] += g[i].y, gate[2] += g[i].z, gate[3] += g[i].w;
      up[0] += u[i].x, up[1] += u[i].y, up[2] += u[i].z, up[3] += u[i].w;
    }
  }
  float value[4];
  activation_of(problem, gate, up, scales, value);
  write_fragments<BOOK>(fragment, value);
}

#ifdef CARVE_FEW
// Where few activations are wanted, four warps share one: gate or up, and each half of the chunks. Their sums meet in shared
// memory, and the scales of a warp's first activation are on their way while the flags are still waited for.
constexpr int few_activations = 8;

struct Activation {
  int rank, slice, row, count;  // count: rows of the expert
};

template <typename COUNT>
__device__ __forceinline__ Activation nth_activation(int number, int rank, int slices, COUNT count_of) {
  while (number >= count_of(rank) * slices) number -= count_of(rank++) * slices;
  const int count = count_of(rank);
  return {rank, number / count, number % count, count};
}

// One warp's quarter of the partial sums of an activation, as four floats a lane.
__device__ void sum_quarter(const Problem& problem, const Shared& shared, const Activation& each, int row, int quarter, float* sums) {
  constexpr int flight = 6;
  const int quads = problem.hidden / 64, slices = problem.intermediate / 128, total = shared.routes.ranks * slices * quads;
  const int lane = threadIdx.x % 32, item = (each.rank * slices + each.slice) * quads;
  const int first = chunk_of(item, total, problem.chunks), last = chunk_of(item + quads - 1, total, problem.chunks);
  const int middle = (first + last + 1) / 2, begin = quarter & 2 ? middle : first, end = quarter & 2 ? last + 1 : middle;
  const float* partial =
      problem.partial + (partial_row(problem, shared.routes, each.rank, each.slice, begin) + row) * 256 + (quarter & 1) * 128 + lane * 4;
  const int64_t stride = int64_t(problem.rows) * 256;
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int chunk = begin; chunk < end; chunk += flight, partial += flight * stride) {
    float4 one[flight];
#pragma unroll
    for (int i = 0; i < flight; i++) {
      one[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (chunk + i < end) one[i] = __ldcg(reinterpret_cast<const float4*>(partial + i * stride));
    }
#pragma unroll
    for (int i = 0; i < flight; i++) sum.x += one[i].x, sum.y += one[i].y, sum.z += one[i].z, sum.w += one[i].w;
  }
  *reinterpret_cast<float4*>(sums + lane * 4) = sum;
}

// An activation from its four quarters, of which a warp makes the B fragment.
template <Codebook BOOK>
__device__ void activate_quarters(const Problem& problem, const ActivationScales& scales, const float* sums, uint8_t* fragment) {
  const float4* from = reinterpret_cast<const float4*>(sums) + threadIdx.x % 32;
  const float4 a = from[0], b = from[32], c = from[64], d = from[96];
  float gate[4] = {a.x + c.x, a.y + c.y, a.z + c.z, a.w + c.w}, up[4] = {b.x + d.x, b.y + d.y, b.z + d.z, b.w + d.w}, value[4];
  activation_of(problem, gate, up, scales, value);
  write_fragments<BOOK>(fragment, value);
}
#endif

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

// A warp's quads of the first column block of a chunk, decoded while its activations are waited for: where a warp has this many
// a block, and the kernel is for few rows.
template <int K, Codebook BOOK>
struct FirstBlock {
#ifdef CARVE_AHEAD
  static constexpr int quads = 2;
  Decoded<K, tiles, BOOK, paired> decoded[quads];
#endif
  bool ready = false;  // decoded and not yet multiplied
};

// The column blocks begin .. end of one expert for count of its rows, into the results.
template <int K, Codebook BOOK, int DEPTH, int GROUPS>
__device__ __forceinline__ void down_blocks(const Problem& problem, const Shared& shared, int rank, int begin, int end, int first_row,
                                            int count, Ring<K, BOOK, DEPTH>& ring, Walk& walk, FirstBlock<K, BOOK>& ahead, uint32_t fragments,
                                            float* sums_memory) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group_lane = lane / 4, t = lane % 4, half = warp / 4;
  const int quads = problem.intermediate / 64 / halves;
  const uint16_t* svh = entry_of(problem.matrices[2].svh, shared.routes.expert[rank]);
  float* results = problem.results + (int64_t(shared.routes.pairs_before[rank]) + first_row) * problem.hidden + lane * 4;
  uint32_t operand[GROUPS];
#pragma unroll
  for (int group = 0; group < GROUPS; group++)
    operand[group] = fragments + max(min(group * 8 + group_lane, count - 1), 0) * fragment_bytes + t * 16;
  const int at_once = sums_rows<GROUPS> / max(count, 1);
#pragma unroll 1
  for (int first = begin; first < end; first += at_once) {
    const int now = min(at_once, end - first), tasks = now * count;
    uint2 scale = warp < tasks ? halves_at(svh, (first + warp / count) * 128 + lane * 4) : make_uint2(0, 0);
#pragma unroll 1
    for (int block = 0; block < now; block++) {
      float sums[tiles][GROUPS][4] = {};
#ifdef CARVE_AHEAD
      if (ahead.ready) {
        uint32_t at[GROUPS];
#pragma unroll
        for (int quad = 0; quad < ahead.quads; quad++) {
#pragma unroll
          for (int group = 0; group < GROUPS; group++) at[group] = operand[group] + half * count * fragment_bytes + quad * 256;
          ahead.decoded[quad].multiply(sums, at);
        }
        ahead.ready = false;
      } else
#endif
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
      const int column = (first + task / count) * 128;
      if (task != warp) scale = halves_at(svh, column + lane * 4);
      float value[4] = {};
#pragma unroll
      for (int part = 0; part < halves; part++) {
        const float4 sum = *reinterpret_cast<const float4*>(sums_memory + (part * sums_rows<GROUPS> + task) * sums_stride + lane * 4);
        value[0] += sum.x, value[1] += sum.y, value[2] += sum.z, value[3] += sum.w;
      }
      rotate_and_scale(value, scale);
      __stcg(reinterpret_cast<float4*>(results + int64_t(task % count) * problem.hidden + column),
             make_float4(value[0], value[1], value[2], value[3]));
    }
    __syncthreads();  // the sums are free again
  }
}

// Tells that column blocks begin .. end of the chunk are in the results, and adds up the rows' blocks that are complete
// with them; by one block, after a barrier.
__device__ void combine_complete(const Problem& problem, Shared& shared, int begin, int end) {
  const int blocks = problem.hidden / 128;
  int rank = begin / blocks, from = begin % blocks, number = threadIdx.x;  // the number-th row and block from here on
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
      const int row = nth_row(shared.routes.rows[rank], number % rows), at = row * blocks + from + number / rows;
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

template <int K, Codebook BOOK, int DEPTH, int LEAST, int MOST>
__device__ void down(const Problem& problem, Shared& shared, int chunk, uint32_t ring_base, uint8_t* fragments, float* sums) {
  const int warp = threadIdx.x / 32, blocks = problem.hidden / 128, slices = problem.intermediate / 128;
  const int total = shared.routes.ranks * blocks;
  const int begin = begin_of_chunk(chunk, total, problem.chunks), end = begin_of_chunk(chunk + 1, total, problem.chunks);
  int most_rows = 0;
  for (int rank = begin / blocks; begin < end && rank * blocks < end; rank++) most_rows = max(most_rows, __popc(shared.routes.rows[rank]));
  const int rows_at_once = min(CARVE_CUDA_MAX_ROWS, problem.fragments / slices), quads = problem.intermediate / 64 / halves;
  Draw draw(problem, shared);
  // More than one round only where the activations of a wide expert do not fit; its bytes are then read again.
  for (int first_row = 0; first_row < most_rows; first_row += rows_at_once) {
    Walk walk;
    walk.parts = blocks;
    walk.full_run = quads;
    walk.first_quad = warp / 4 * quads;
    walk.tile = warp % 4 * tiles;
    walk.tile_bytes = 32 * K;
    walk.item_bytes = problem.hidden / 4 * walk.tile_bytes;
    walk.trellis = problem.matrices[2].trellis;
    walk.rank = begin / blocks;
    walk.part = begin % blocks;
    Ring<K, BOOK, DEPTH> ring(ring_base, walk.item_bytes / 4);
    walk.open(shared.routes, (end - begin) * quads, 0);
    ring.start(walk, shared.routes);
    const auto count_of = [&](int rank) { return max(0, min(__popc(shared.routes.rows[rank]) - first_row, rows_at_once)); };
#ifdef CARVE_FEW
    int wanted = 0;
    for (int each = begin / blocks; each * blocks < end; each++) wanted += count_of(each) * slices;
    const bool few = MOST == 1 && wanted <= few_activations && wanted <= problem.fragments;  // up to eight rows
    ActivationScales early = {};
    if (few && warp < wanted) {
      const Activation each = nth_activation(warp, begin / blocks, slices, count_of);
      early = scales_of(problem, shared.routes.expert[each.rank], each.slice * 128 + threadIdx.x % 32 * 4);
    }
#endif
    FirstBlock<K, BOOK> ahead;
#ifdef CARVE_AHEAD
    if (MOST == 1 && quads == ahead.quads) {
#pragma unroll
      for (int quad = 0; quad < ahead.quads; quad++) {
        LaneWords<K> lane[tiles];
        ring.take(lane, walk, shared.routes);
        ahead.decoded[quad].decode(lane);
      }
      ahead.ready = true;
    }
#endif
    for (int rank = begin / blocks; rank * blocks < end;) {
      // As many experts as have room for their activations; most often all of the chunk's.
      int last = rank, used = 0;
      while (last * blocks < end && used + count_of(last) * slices <= problem.fragments) {
        MARK(6);
        wait_for_gate_up(problem, shared, last);
        used += count_of(last++) * slices;
      }
      __syncthreads();
      MARK(7);
      int turn = 0, before = 0;
#ifdef CARVE_FEW
      if (few) {
        for (int part = warp; part < 4 * wanted; part += warps) {
          const Activation each = nth_activation(part / 4, rank, slices, count_of);
          sum_quarter(problem, shared, each, first_row + each.row, part % 4, sums + part * 128);
        }
        __syncthreads();
        if (warp < wanted) activate_quarters<BOOK>(problem, early, sums + warp * 4 * 128, fragments + warp * fragment_bytes);
      } else
#endif
      for (int each = rank; each < last; before += count_of(each++) * slices)
        for (int number = 0; number < count_of(each) * slices; number++, turn++)
          if (turn % warps == warp)
            activate<BOOK>(problem, shared, each, number / count_of(each), first_row + number % count_of(each), fragments + (before + number) * fragment_bytes);
      __syncthreads();
      MARK(8);
      if (rank == begin / blocks && first_row == 0) draw.take();
      for (before = 0; rank < last; before += count_of(rank++) * slices) {
        const int from = max(begin - rank * blocks, 0), to = min(end - rank * blocks, blocks);
        with_groups<LEAST, MOST>(count_of(rank), [&](auto groups) {
          down_blocks<K, BOOK, DEPTH, groups.value>(problem, shared, rank, from, to, first_row, count_of(rank), ring, walk, ahead,
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
