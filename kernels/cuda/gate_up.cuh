// A chunk of gate and up: rotated inputs times tiles of 128 gate and the same 128 up columns, as partial sums.
#pragma once
#include "problem.cuh"

namespace carve {

// Collects the next segments of chunk quads [.., end) whose fragments fit; by one thread.
__device__ void collect_segments(const Problem& problem, Shared& shared, int chunk_begin, int end) {
  const int quads = problem.hidden / 64;
  int count = 0, used = 0;
  while (shared.next_slice * quads + shared.next_quad < end && count < max_segments) {
    Segment& segment = shared.segments[count];
    segment.slice = shared.next_slice;
    segment.rank = problem.by_slices.divide(segment.slice);
    segment.rows = shared.routes.rows[segment.rank];
    segment.begin = shared.next_quad;
    segment.end = min(quads, end - segment.slice * quads);
    const int per_block = 2 * __popc(segment.rows), wanted = (segment.end + 1) / 2 - segment.begin / 2;
    if (used + wanted * per_block > problem.fragments) {
      if (count > 0) break;
      segment.end = (segment.begin / 2 + problem.fragments / per_block) * 2;
    }
    segment.first_fragment = used;
    segment.first = segment.begin == max(0, chunk_begin - segment.slice * quads);
    segment.last = segment.end == min(quads, end - segment.slice * quads);
    used += ((segment.end + 1) / 2 - segment.begin / 2) * per_block;
    count++;
    shared.next_quad = segment.end;
    if (segment.end == quads) shared.next_slice++, shared.next_quad = 0;
  }
  shared.segment_count = count;
}

// Hands out the inputs to transform to a warp: the gate side (even warps) or the up side of a block for one row.
struct InputWalk {
  const Shared& shared;
  int number = 0, part, parts, fragment;
  uint32_t left;  // rows of the segment from this one on

  __device__ __forceinline__ explicit InputWalk(const Shared& shared) : shared(shared), part(threadIdx.x / 32) { enter(); }

  __device__ __forceinline__ void enter() {
    if (number >= shared.segment_count) return;
    const Segment& segment = shared.segments[number];
    left = segment.rows;
    fragment = segment.first_fragment;
    parts = 2 * ((segment.end + 1) / 2 - segment.begin / 2);
  }

  // Whether there is one; then `part` of row __ffs(left) - 1 of segment `number`.
  __device__ __forceinline__ bool settle() {
    while (number < shared.segment_count && part >= parts) {
      part -= parts;
      left &= left - 1;
      fragment++;
      if (left == 0) number++, enter();
    }
    return number < shared.segment_count;
  }
};

// x of every segment into B fragments, up to four at a time a warp, so that their loads are in flight together.
template <Codebook BOOK>
__device__ void transform_inputs(const Problem& problem, const Shared& shared, uint8_t* fragments) {
  constexpr int flight = 4;
  const int lane = threadIdx.x % 32;
  const Table table = threadIdx.x / 32 & 1 ? problem.matrices[1].suh : problem.matrices[0].suh;
  InputWalk walk(shared);
  uint2 x[flight], scale[flight];
  int target[flight];
  const auto ask = [&](int i) {
    const Segment& segment = shared.segments[walk.number];
    const int at = (segment.begin / 2 + walk.part / 2) * 128 + lane * 4;
    x[i] = x_at(problem, int64_t(__ffs(walk.left) - 1) * problem.hidden + at);
    scale[i] = halves_at(entry_of(table, shared.routes.expert[segment.rank]), at);
    target[i] = walk.fragment + walk.part * __popc(segment.rows);
    walk.part += warps;
  };
  const auto write = [&](int i) {
    const float4 a = floats(x[i]), b = floats(scale[i]);
    float value[4] = {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
    hadamard128(value);
    write_fragments<BOOK>(fragments + target[i] * fragment_bytes, value);
  };
  bool more = walk.settle();
  while (more) {
    ask(0);
    more = walk.settle();
    if (!more) return write(0);  // of few rows most warps have one: no jumps over what the others would need
    int count = 1;
#pragma unroll
    for (int i = 1; i < flight; i++)
      if (more) ask(i), more = walk.settle(), count = i + 1;
    write(0);
#pragma unroll
    for (int i = 1; i < flight; i++)
      if (i < count) write(i);
  }
}

template <int K, Codebook BOOK, int DEPTH, int GROUPS>
__device__ __forceinline__ void gate_up_segment(const Problem& problem, const Shared& shared, const Segment& segment, int chunk,
                                                Ring<K, BOOK, DEPTH>& ring, Walk& walk, uint32_t fragments) {
  const int warp = threadIdx.x / 32, group_lane = threadIdx.x / 4 % 8, t = threadIdx.x % 4;
  const int up = warp / (warps / 2), column = warp % (warps / 2) * tiles * 16, rows = __popc(segment.rows);
  float sums[tiles][GROUPS][4] = {};
  uint32_t operand[GROUPS];
#pragma unroll
  for (int group = 0; group < GROUPS; group++)  // a lane without a row reads another's: its products go nowhere
    operand[group] = fragments + (segment.first_fragment + up * rows + min(group * 8 + group_lane, rows - 1)) * fragment_bytes + t * 16;
  const uint32_t block_bytes = 2 * rows * fragment_bytes;
  const int before = segment.begin / 2 * 2;
  ring.multiply(sums, walk, shared.routes, segment.begin - before, segment.end - before, operand, block_bytes);
  const int slices = problem.intermediate / 128;
  float* partial = problem.partial + partial_row(problem, shared.routes, segment.rank, segment.slice - segment.rank * slices, chunk) * 256 +
                   up * 128 + column + group_lane;
#pragma unroll
  for (int tile = 0; tile < tiles; tile++)
#pragma unroll
    for (int group = 0; group < GROUPS; group++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int row = group * 8 + 2 * t + (i & 1);
        if (row >= rows) continue;
        float* at = partial + row * 256 + tile * 16 + (i >> 1) * 8;
        __stcg(at, segment.first ? sums[tile][group][i] : __ldcg(at) + sums[tile][group][i]);
      }
}

template <int K, Codebook BOOK, int DEPTH, int LEAST, int MOST>
__device__ void gate_up(const Problem& problem, Shared& shared, int chunk, uint32_t ring_base, uint8_t* fragments) {
  const int warp = threadIdx.x / 32, quads = problem.hidden / 64, slices = problem.intermediate / 128;
  const int total = shared.routes.ranks * slices * quads;
  const int begin = begin_of_chunk(problem, chunk, total), end = begin_of_chunk(problem, chunk + 1, total);
  const int first_slice = problem.by_quads.divide(begin), first_quad = begin - first_slice * quads;
  Walk walk;
  walk.parts = slices;
  walk.full_run = quads;
  walk.first_quad = 0;
  walk.tile = warp % (warps / 2) * tiles;
  walk.tile_bytes = 32 * K;
  walk.item_bytes = problem.intermediate / 4 * walk.tile_bytes;
  walk.trellis = warp < warps / 2 ? problem.matrices[0].trellis : problem.matrices[1].trellis;
  Ring<K, BOOK, DEPTH> ring(ring_base, walk.item_bytes / 4);
  if (threadIdx.x == threads - 32) {
    shared.next_slice = first_slice;
    shared.next_quad = first_quad;
    collect_segments(problem, shared, begin, end);
  }
  if (begin < end) {
    walk.rank = problem.by_slices.divide(first_slice);
    walk.part = first_slice - walk.rank * slices;
    walk.open(shared.routes, end - begin, first_quad);
    ring.start(walk, shared.routes);
  }
  Draw draw(problem, shared);
  for (bool first = true, more = begin < end; more; first = false) {
    __syncthreads();
    MARK(2);
    transform_inputs<BOOK>(problem, shared, fragments);
    __syncthreads();
    MARK(3);
    if (first) draw.take();
    for (int number = 0; number < shared.segment_count; number++) {
      const Segment& segment = shared.segments[number];
      const int rows = __popc(segment.rows);
      with_groups<LEAST, MOST>(rows, [&](auto groups) {
        gate_up_segment<K, BOOK, DEPTH, groups.value>(problem, shared, segment, chunk, ring, walk, shared_address(fragments));
      });
    }
    MARK(4);
    more = shared.next_slice * quads + shared.next_quad < end;
    if (!more) draw.publish();
    __syncthreads();
    MARK(5);
    if (warp == warps - 1) {
      const int number = threadIdx.x % 32;
      if (number < shared.segment_count && shared.segments[number].last)
        store_release(problem.flags + shared.segments[number].slice + chunk, shared.launch);
      __syncwarp();
      if (more && number == 0) collect_segments(problem, shared, begin, end);
    }
  }
  if (begin == end) {
    draw.publish();
    __syncthreads();
  }
}

}  // namespace carve
