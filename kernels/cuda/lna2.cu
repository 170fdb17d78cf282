// lna2: the routed experts of a layer for 1 to 32 rows, in one launch without a grid-wide barrier.
//
// The gate and up tiles of all chosen experts, in order, are cut into equal chunks, and so are the columns of their down
// projections. Blocks draw chunks by tickets: first every gate/up chunk, then every down chunk. A down chunk waits for
// the flags of the gate/up chunks that its experts lie in; those were drawn earlier by blocks that run, so every order of
// blocks makes progress. What a chunk contributes depends on the routes alone, and sums have a fixed order: results
// repeat bit by bit.
//
//   gate/up chunk  x * suh, Hadamard -> half B fragments (once per row, expert and 128 inputs), decode, multiply,
//                  float partial sums of 128 gate and 128 up columns per row to scratch, flag
//   down chunk     flags; partial sums, Hadamard, svh, activation -> half, suh, Hadamard -> half B fragments; decode,
//                  multiply; Hadamard, svh -> scratch; the last expert of a row's 128 columns adds them up in slot order
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdio.h>
#include <stdlib.h>

#include "counters.cuh"
#include "hadamard.cuh"
#include "routes.cuh"
#include "stream.cuh"

#ifndef CARVE_WARPS
#define CARVE_WARPS 8
#endif
#ifndef CARVE_BLOCKS
#define CARVE_BLOCKS 2
#endif
#ifndef CARVE_DEPTH
#define CARVE_DEPTH 4
#endif

#if defined(CARVE_PAIRED)
#define CARVE_NAME "lna2-paired"
#elif defined(CARVE_NULL_DECODE)
#define CARVE_NAME "lna2-null-decode"
#else
#define CARVE_NAME "lna2"
#endif

// Phase clocks of every block's first two chunks, for the desk.
#ifdef CARVE_CLOCKS
__device__ long long carve_clocks[1024][16];
#define MARK(number) \
  if (threadIdx.x == 0 && carve_clocks[blockIdx.x][number] == 0) carve_clocks[blockIdx.x][number] = clock64()
#else
#define MARK(number)
#endif

namespace carve {

#ifdef CARVE_PAIRED
constexpr bool paired = true;
#else
constexpr bool paired = false;
#endif

constexpr int warps = CARVE_WARPS, threads = warps * 32, blocks_per_sm = CARVE_BLOCKS;
constexpr int tiles = 16 / warps;                        // neighbouring columns of tiles of one warp in gate/up
constexpr int halves = warps / 8;                        // warps that share a column of tiles in down
constexpr int fragment_bytes = 576;                      // B fragments of a row's 128 inputs; 64 of it keep banks apart
constexpr int min_fragments = 2 * CARVE_CUDA_MAX_ROWS;   // gate and up of one block of inputs for every row
constexpr int max_segments = 16;
constexpr int sums_rows = CARVE_CUDA_MAX_ROWS;           // of down's sums that shared memory holds at once
constexpr int sums_stride = 132;                         // floats of a row of 128 in shared memory
constexpr int max_configurations = 32;

constexpr uint64_t tickets_bytes = max_configurations * 8, max_flags = 65536, max_hidden = 32768;
constexpr uint64_t arrivals_at = tickets_bytes, flags_at = arrivals_at + CARVE_CUDA_MAX_ROWS * (max_hidden / 128) * 4,
                   data_at = flags_at + max_flags * 8;

using Table = const uint16_t* const*;  // [experts] on the device

struct Matrices {
  Table trellis, suh, svh;
  int bits;
};

struct Problem {
  const void* x;
  const int32_t* ids;
  const float* weights;
  void* out;
  Matrices matrices[3];  // gate, up, down
  unsigned long long* ticket;
  uint32_t* arrivals;            // [rows, hidden / 128]: experts whose down columns are in scratch; zero between launches
  unsigned long long* flags;     // one a segment: the launch that wrote its partial sums
  float* partial;                // [segment rows, 256]
  float* results;                // [pairs, hidden]
  int layer, rows, hidden, intermediate, topk, experts;
  int chunks;            // of gate/up, and of down
  int fragments;         // that fit into shared memory
  int configuration;     // number of the ticket counter
  float limit;
  int x_type, out_type;
};

// A part of a chunk of gate/up whose inputs fit into the fragments at once: quads begin..end of one slice.
struct Segment {
  int slice, rank, begin, end, first_fragment;
  uint32_t rows;
  bool first, last;  // within the chunk
};

struct Shared {
  Routes routes;
  Segment segments[max_segments];
  int segment_count, next_slice, next_quad;  // where the following batch begins
  int ticket, complete_count;
  uint32_t complete[threads];  // row and column block whose experts are all in scratch
  unsigned long long first_ticket, launch;  // launch: what its flags hold
};

__device__ __forceinline__ unsigned long long load_acquire(const unsigned long long* address) {
  unsigned long long value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}

__device__ __forceinline__ void store_release(unsigned long long* address, unsigned long long value) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

__device__ __forceinline__ const uint16_t* entry_of(Table table, int expert) {
  return reinterpret_cast<const uint16_t*>(__ldg(reinterpret_cast<const unsigned long long*>(table) + expert));
}

__device__ __forceinline__ float4 halves_at(const uint16_t* base, int at) {
  const uint2 raw = __ldg(reinterpret_cast<const uint2*>(base + at));
  const float2 low = __half22float2(*reinterpret_cast<const __half2*>(&raw.x));
  const float2 high = __half22float2(*reinterpret_cast<const __half2*>(&raw.y));
  return make_float4(low.x, low.y, high.x, high.y);
}

// Four values of x as halves.
__device__ __forceinline__ uint2 x_at(const Problem& problem, int64_t at) {
  uint2 raw = __ldg(reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(problem.x) + at));
  if (problem.x_type == CARVE_BFLOAT16) {
    const float2 low = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&raw.x));
    const float2 high = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&raw.y));
    const __half2 a = __floats2half2_rn(low.x, low.y), b = __floats2half2_rn(high.x, high.y);
    raw = make_uint2(*reinterpret_cast<const uint32_t*>(&a), *reinterpret_cast<const uint32_t*>(&b));
  }
  return raw;
}

// Writes four neighbouring inputs (4 lane .. 4 lane + 3) of a block of 128 as B fragments: see exl3.cuh.
template <Codebook BOOK>
__device__ __forceinline__ void write_fragments(uint8_t* fragment, const float (&value)[4]) {
  const int lane = threadIdx.x % 32, quad = lane / 16, tile = lane / 4 % 4, k = lane % 4 * 4;
  uint32_t* at = reinterpret_cast<uint32_t*>(fragment) + (quad * 16 + tile) * 4 + k % 8 / 2 * 16 + k / 8 * 2;
  *reinterpret_cast<uint2*>(at) = make_uint2(operand<BOOK, paired>(value[0]), operand<BOOK, paired>(value[1]));
  *reinterpret_cast<uint2*>(at + 16) = make_uint2(operand<BOOK, paired>(value[2]), operand<BOOK, paired>(value[3]));
}

// Items 0 .. total of a phase in equal chunks; total * chunks fits 32 bits (checked by the host). The chunks beyond the
// number of items are empty.
__device__ __forceinline__ int begin_of_chunk(int chunk, uint32_t total, uint32_t chunks) {
  const uint32_t used = min(total, chunks);
  return used == 0 ? 0 : min(uint32_t(chunk), used) * total / used;
}
__device__ __forceinline__ int chunk_of(int item, uint32_t total, uint32_t chunks) {
  const uint32_t used = min(total, chunks);
  return ((item + 1) * used - 1) / total;
}

// A slice is 128 gate and the same 128 up columns of an expert: hidden / 64 quads. Its rows of partial sums per chunk:
__device__ __forceinline__ int64_t partial_row(const Problem& problem, const Routes& routes, int rank, int slice_of_rank, int chunk) {
  const int slices = problem.intermediate / 128;
  return int64_t(routes.pairs_before[rank]) * slices + slice_of_rank * __popc(routes.rows[rank]) + int64_t(chunk) * problem.rows;
}

// The items of one warp in a chunk, in order. Runs are the quads of a slice (gate/up) or of a column block (down).
struct Walk {
  const uint8_t* source;
  int in_run, left;           // items
  int rank, part;             // part: slice of the rank, or column block
  int parts, full_run, first_quad, tile;
  uint32_t item_bytes, tile_bytes;
  Table trellis;

  __device__ __forceinline__ void open(const Routes& routes, int skip) {
    const uint8_t* matrix = reinterpret_cast<const uint8_t*>(entry_of(trellis, routes.expert[rank]));
    source = matrix + uint64_t(first_quad + skip) * item_bytes + uint64_t(part * 8 + tile) * tile_bytes;
    in_run = full_run - skip;
  }

  __device__ __forceinline__ void step(const Routes& routes) {
    source += item_bytes;
    left--;
    if (--in_run == 0 && left > 0) {
      if (++part == parts) part = 0, rank++;
      open(routes, 0);
    }
  }
};

template <int K, int TILES, Codebook BOOK, int DEPTH>
struct Ring {
  uint32_t base;
  int read = 0, write = 0;
  Copier<K, TILES> copier;
  static constexpr int item = ring_item_bytes(K, TILES);

  __device__ __forceinline__ Ring(uint32_t base, uint32_t row_bytes) : base(base), copier(row_bytes) {}

  __device__ __forceinline__ void fetch(Walk& walk, const Routes& routes) {
    if (walk.left > 0) {
      copier.copy(walk.source, base + write * item);
      walk.step(routes);
    }
    copy_commit();
    write = write + 1 == DEPTH ? 0 : write + 1;
  }

  __device__ __forceinline__ void start(Walk& walk, const Routes& routes) {
#pragma unroll 1
    for (int i = 0; i < DEPTH - 1; i++) fetch(walk, routes);
  }

  // operand: shared address of this lane's B fragments of quad 0; two quads are one block of inputs.
  template <int GROUPS>
  __device__ __forceinline__ void multiply(float (&sums)[TILES][GROUPS][4], Walk& walk, const Routes& routes, int begin, int end,
                                           const uint32_t (&operand)[GROUPS], uint32_t block_bytes) {
#pragma unroll 1
    for (int quad = begin; quad < end; quad++) {
      copy_wait<DEPTH - 2>();
      __syncwarp();
      LaneWords<K> lane[TILES];
#pragma unroll
      for (int column = 0; column < TILES; column++) lane[column] = lane_words<K>(base + read * item, column);
      read = read + 1 == DEPTH ? 0 : read + 1;
      fetch(walk, routes);
      uint32_t at[GROUPS];
#pragma unroll
      for (int group = 0; group < GROUPS; group++) at[group] = operand[group] + (quad >> 1) * block_bytes + (quad & 1) * 256;
      Quad<K, TILES, GROUPS, BOOK, paired>::run(sums, lane, at);
    }
  }
};

// The next ticket: taken while a chunk is worked on, known to the block at the end of it. Every block draws until there
// are no chunks left, so a launch draws 2 * chunks + blocks tickets and the counter needs no reset.
struct Draw {
  const Problem& problem;
  Shared& shared;
  unsigned long long number = ~0ull;

  __device__ __forceinline__ Draw(const Problem& problem, Shared& shared) : problem(problem), shared(shared) {}

  __device__ __forceinline__ void take() {
    if (threadIdx.x == 0) number = atomicAdd(problem.ticket, 1ull);
  }

  __device__ __forceinline__ void publish() {
    if (threadIdx.x == 0) {
      if (number == ~0ull) take();
      shared.ticket = static_cast<int>(number - shared.first_ticket);
    }
    __syncthreads();
  }
};

// Collects the next segments of chunk quads [.., end) whose fragments fit; by one thread.
__device__ void collect_segments(const Problem& problem, Shared& shared, int chunk_begin, int end) {
  const int quads = problem.hidden / 64, slices = problem.intermediate / 128;
  int count = 0, used = 0;
  while (shared.next_slice * quads + shared.next_quad < end && count < max_segments) {
    Segment& segment = shared.segments[count];
    segment.slice = shared.next_slice;
    segment.rank = segment.slice / slices;
    segment.rows = shared.routes.rows[segment.rank];
    segment.begin = shared.next_quad;
    segment.end = min(quads, end - segment.slice * quads);
    const int per_block = 2 * __popc(segment.rows), fit = (problem.fragments - used) / per_block;
    const int wanted = (segment.end + 1) / 2 - segment.begin / 2;
    if (fit < wanted && count > 0) break;
    if (fit < wanted) segment.end = (segment.begin / 2 + fit) * 2;
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

// x of every segment into B fragments; four at a time a warp, so that their loads are in flight together.
template <Codebook BOOK>
__device__ void transform_inputs(const Problem& problem, const Shared& shared, uint8_t* fragments) {
  constexpr int flight = 4;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Segment& last = shared.segments[shared.segment_count - 1];
  const int total = last.first_fragment + ((last.end + 1) / 2 - last.begin / 2) * 2 * __popc(last.rows);
  for (int base = warp; base < total; base += flight * warps) {
    uint2 x[flight];
    float4 scale[flight];
#pragma unroll
    for (int i = 0; i < flight; i++) {
      const int fragment = base + i * warps;
      if (fragment >= total) continue;
      int number = 0;
      while (number + 1 < shared.segment_count && shared.segments[number + 1].first_fragment <= fragment) number++;
      const Segment& segment = shared.segments[number];
      const int count = __popc(segment.rows), local = fragment - segment.first_fragment;
      const int row = nth_row(segment.rows, local % count), part = local / count, block = segment.begin / 2 + part / 2;
      const int at = block * 128 + lane * 4;
      x[i] = x_at(problem, int64_t(row) * problem.hidden + at);
      const Table suh = part & 1 ? problem.matrices[1].suh : problem.matrices[0].suh;
      scale[i] = halves_at(entry_of(suh, shared.routes.expert[segment.rank]), at);
    }
#pragma unroll
    for (int i = 0; i < flight; i++) {
      const int fragment = base + i * warps;
      if (fragment >= total) continue;
      const float2 low = __half22float2(*reinterpret_cast<const __half2*>(&x[i].x));
      const float2 high = __half22float2(*reinterpret_cast<const __half2*>(&x[i].y));
      float value[4] = {low.x * scale[i].x, low.y * scale[i].y, high.x * scale[i].z, high.y * scale[i].w};
      hadamard128(value);
      write_fragments<BOOK>(fragments + fragment * fragment_bytes, value);
    }
  }
}

template <int K, Codebook BOOK, int DEPTH, int GROUPS>
__device__ __forceinline__ void gate_up_segment(const Problem& problem, const Shared& shared, const Segment& segment, int chunk,
                                                Ring<K, tiles, BOOK, DEPTH>& ring, Walk& walk, uint32_t fragments) {
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

template <int K, Codebook BOOK, int DEPTH, bool ANY_ROWS>
__device__ void gate_up(const Problem& problem, Shared& shared, int chunk, uint32_t ring_base, uint8_t* fragments) {
  const int warp = threadIdx.x / 32, quads = problem.hidden / 64, slices = problem.intermediate / 128;
  const int total = shared.routes.ranks * slices * quads;
  const int begin = begin_of_chunk(chunk, total, problem.chunks), end = begin_of_chunk(chunk + 1, total, problem.chunks);
  Walk walk;
  walk.left = end - begin;
  walk.parts = slices;
  walk.full_run = quads;
  walk.first_quad = 0;
  walk.tile = warp % (warps / 2) * tiles;
  walk.tile_bytes = 32 * K;
  walk.item_bytes = problem.intermediate / 4 * walk.tile_bytes;
  walk.trellis = warp < warps / 2 ? problem.matrices[0].trellis : problem.matrices[1].trellis;
  Ring<K, tiles, BOOK, DEPTH> ring(ring_base, walk.item_bytes / 4);
  if (walk.left > 0) {
    walk.rank = begin / quads / slices;
    walk.part = begin / quads % slices;
    walk.open(shared.routes, begin % quads);
    ring.start(walk, shared.routes);
  }
  if (threadIdx.x == 0) {
    shared.next_slice = begin / quads;
    shared.next_quad = begin % quads;
  }
  Draw draw(problem, shared);
  for (bool first = true; begin < end; first = false) {
    if (threadIdx.x == 0) collect_segments(problem, shared, begin, end);
    __syncthreads();
    MARK(2);
    transform_inputs<BOOK>(problem, shared, fragments);
    __syncthreads();
    MARK(3);
    if (first) draw.take();
    for (int number = 0; number < shared.segment_count; number++) {
      const Segment& segment = shared.segments[number];
      const int rows = __popc(segment.rows);
      if (!ANY_ROWS && rows <= 8)
        gate_up_segment<K, BOOK, DEPTH, 1>(problem, shared, segment, chunk, ring, walk, shared_address(fragments));
      else if (!ANY_ROWS && rows <= 16)
        gate_up_segment<K, BOOK, DEPTH, 2>(problem, shared, segment, chunk, ring, walk, shared_address(fragments));
      else
        gate_up_segment<K, BOOK, DEPTH, 4>(problem, shared, segment, chunk, ring, walk, shared_address(fragments));
    }
    MARK(4);
    __syncthreads();
    MARK(5);
    if (threadIdx.x < shared.segment_count && shared.segments[threadIdx.x].last) {
      __threadfence();
      store_release(problem.flags + shared.segments[threadIdx.x].slice + chunk, shared.launch);
    }
    if (shared.next_slice * quads + shared.next_quad >= end) break;
    __syncthreads();  // the flags are read from the segments before they are collected anew
  }
  draw.publish();
}

// Waits until the partial sums of an expert are in scratch; by one block, ends with a barrier.
__device__ void wait_for_gate_up(const Problem& problem, const Shared& shared, int rank) {
  const int quads = problem.hidden / 64, slices = problem.intermediate / 128, total = shared.routes.ranks * slices * quads;
  for (int slice = rank * slices + threadIdx.x / 32; slice < (rank + 1) * slices; slice += warps) {
    const int first = chunk_of(slice * quads, total, problem.chunks), last = chunk_of(slice * quads + quads - 1, total, problem.chunks);
    for (int chunk = first + threadIdx.x % 32; chunk <= last; chunk += 32)
      while (load_acquire(problem.flags + slice + chunk) != shared.launch) {
      }
  }
  __syncthreads();
}

__device__ __forceinline__ void rotate_and_scale(float (&value)[4], float4 scale) {
  hadamard128(value);
  value[0] *= scale.x, value[1] *= scale.y, value[2] *= scale.z, value[3] *= scale.w;
}

// What an activation is scaled by: four columns of gate's and up's svh, four inputs of down's suh.
struct ActivationScales {
  float4 gate, up, down;

  __device__ __forceinline__ ActivationScales(const Problem& problem, int expert, int at)
      : gate(halves_at(entry_of(problem.matrices[0].svh, expert), at)),
        up(halves_at(entry_of(problem.matrices[1].svh, expert), at)),
        down(halves_at(entry_of(problem.matrices[2].suh, expert), at)) {}
};

// The activation of rows first_row .. first_row + count of an expert, as B fragments of down. scales: of this warp's first.
template <Codebook BOOK>
__device__ void activate(const Problem& problem, const Shared& shared, int rank, int first_row, int count, ActivationScales scales,
                         uint8_t* fragments) {
  const int quads = problem.hidden / 64, slices = problem.intermediate / 128, total = shared.routes.ranks * slices * quads;
  const int lane = threadIdx.x % 32, expert = shared.routes.expert[rank];
  for (int number = threadIdx.x / 32; number < slices * count; number += warps) {
    const int slice = number / count, row = first_row + number % count, item = (rank * slices + slice) * quads;
    const int first = chunk_of(item, total, problem.chunks), last = chunk_of(item + quads - 1, total, problem.chunks);
    const float* partial = problem.partial + (partial_row(problem, shared.routes, rank, slice, first) + row) * 256 + lane * 4;
    const int64_t stride = int64_t(problem.rows) * 256;
    float gate[4] = {}, up[4] = {};
#pragma unroll 8
    for (int chunk = first; chunk <= last; chunk++, partial += stride) {
      const float4 g = __ldcg(reinterpret_cast<const float4*>(partial)), u = __ldcg(reinterpret_cast<const float4*>(partial + 128));
      gate[0] += g.x, gate[1] += g.y, gate[2] += g.z, gate[3] += g.w;
      up[0] += u.x, up[1] += u.y, up[2] += u.z, up[3] += u.w;
    }
    if (number != threadIdx.x / 32) scales = ActivationScales(problem, expert, slice * 128 + lane * 4);
    rotate_and_scale(gate, scales.gate);
    rotate_and_scale(up, scales.up);
    const float scale[4] = {scales.down.x, scales.down.y, scales.down.z, scales.down.w};
    float value[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float g = gate[i], u = up[i];
      if (problem.limit > 0.0f) g = fminf(g, problem.limit), u = fminf(fmaxf(u, -problem.limit), problem.limit);
      value[i] = __half2float(__float2half_rn(g / (1.0f + __expf(-g)) * u)) * scale[i];
    }
    hadamard128(value);
    write_fragments<BOOK>(fragments + number * fragment_bytes, value);
  }
}

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
                                            int count, Ring<K, 1, BOOK, DEPTH>& ring, Walk& walk, uint32_t fragments, float* sums_memory) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group_lane = lane / 4, t = lane % 4, half = warp / 8;
  const int quads = problem.intermediate / 64 / halves;
  const uint16_t* svh = entry_of(problem.matrices[2].svh, shared.routes.expert[rank]);
  float* results = problem.results + (int64_t(shared.routes.pairs_before[rank]) + first_row) * problem.hidden + lane * 4;
  uint32_t operand[GROUPS];
#pragma unroll
  for (int group = 0; group < GROUPS; group++)
    operand[group] = fragments + max(min(group * 8 + group_lane, count - 1), 0) * fragment_bytes + t * 16;
  const int at_once = sums_rows / max(count, 1);
#pragma unroll 1
  for (int first = begin; first < end; first += at_once) {
    const int now = min(at_once, end - first), tasks = now * count;
    float4 scale = warp < tasks ? halves_at(svh, (first + warp / count) * 128 + lane * 4) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
    for (int block = 0; block < now; block++) {
      float sums[1][GROUPS][4] = {};
      ring.multiply(sums, walk, shared.routes, half * quads, (half + 1) * quads, operand, count * fragment_bytes);
#pragma unroll
      for (int group = 0; group < GROUPS; group++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int row = group * 8 + 2 * t + (i & 1);
          if (row < count)
            sums_memory[(half * sums_rows + block * count + row) * sums_stride + warp % 8 * 16 + (i >> 1) * 8 + group_lane] = sums[0][group][i];
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
        const float4 sum = *reinterpret_cast<const float4*>(sums_memory + (part * sums_rows + task) * sums_stride + lane * 4);
        value[0] += sum.x, value[1] += sum.y, value[2] += sum.z, value[3] += sum.w;
      }
      hadamard128(value);
      __stcg(reinterpret_cast<float4*>(results + int64_t(task % count) * problem.hidden + column),
             make_float4(value[0] * scale.x, value[1] * scale.y, value[2] * scale.z, value[3] * scale.w));
    }
    __syncthreads();  // the sums are free again
  }
}

// Tells that column blocks begin .. end of the chunk are in the results, and adds up the rows' blocks that are complete
// with them; by one block, after a barrier.
__device__ void combine_complete(const Problem& problem, Shared& shared, int begin, int end) {
  const int blocks = problem.hidden / 128;
  for (int rank = begin / blocks; rank * blocks < end; rank++) {
    const int from = max(begin - rank * blocks, 0), to = min(end - rank * blocks, blocks), count = __popc(shared.routes.rows[rank]);
    for (int base = 0; base < (to - from) * count; base += threads) {
      if (threadIdx.x == 0) shared.complete_count = 0;
      __syncthreads();
      const int number = base + threadIdx.x;
      if (number < (to - from) * count) {
        const int row = nth_row(shared.routes.rows[rank], number % count), at = row * blocks + from + number / count;
        __threadfence();
        if (atomicAdd(problem.arrivals + at, 1u) + 1 == shared.routes.experts_of_row[row]) {
          problem.arrivals[at] = 0;
          shared.complete[atomicAdd(&shared.complete_count, 1)] = at;
        }
      }
      __syncthreads();
      __threadfence();
      for (int i = threadIdx.x / 32; i < shared.complete_count; i += warps)
        combine(problem, shared.routes, shared.complete[i] / blocks, shared.complete[i] % blocks);
      __syncthreads();
    }
  }
}

template <int K, Codebook BOOK, int DEPTH, bool ANY_ROWS>
__device__ void down(const Problem& problem, Shared& shared, int chunk, uint32_t ring_base, uint8_t* fragments, float* sums) {
  const int warp = threadIdx.x / 32, blocks = problem.hidden / 128, slices = problem.intermediate / 128;
  const int total = shared.routes.ranks * blocks;
  const int begin = begin_of_chunk(chunk, total, problem.chunks), end = begin_of_chunk(chunk + 1, total, problem.chunks);
  int most_rows = 0;
  for (int rank = begin / blocks; begin < end && rank * blocks < end; rank++) most_rows = max(most_rows, __popc(shared.routes.rows[rank]));
  const int rows_at_once = min(CARVE_CUDA_MAX_ROWS, problem.fragments / slices);
  Draw draw(problem, shared);
  // More than one round only where the activations of a wide expert do not fit; its bytes are then read again.
  for (int first_row = 0; first_row < most_rows; first_row += rows_at_once) {
    const int quads = problem.intermediate / 64 / halves;
    Walk walk;
    walk.left = (end - begin) * quads;
    walk.parts = blocks;
    walk.full_run = quads;
    walk.first_quad = warp / 8 * quads;
    walk.tile = warp % 8;
    walk.tile_bytes = 32 * K;
    walk.item_bytes = problem.hidden / 4 * walk.tile_bytes;
    walk.trellis = problem.matrices[2].trellis;
    walk.rank = begin / blocks;
    walk.part = begin % blocks;
    Ring<K, 1, BOOK, DEPTH> ring(ring_base, walk.item_bytes / 4);
    walk.open(shared.routes, 0);
    ring.start(walk, shared.routes);
    for (int rank = begin / blocks; rank * blocks < end; rank++) {
      const int count = max(0, min(__popc(shared.routes.rows[rank]) - first_row, rows_at_once));
      MARK(6);
      const ActivationScales scales(problem, shared.routes.expert[rank], min(warp / max(count, 1), slices - 1) * 128 + threadIdx.x % 32 * 4);
      wait_for_gate_up(problem, shared, rank);
      MARK(7);
      activate<BOOK>(problem, shared, rank, first_row, count, scales, fragments);
      __syncthreads();
      MARK(8);
      if (first_row == 0 && rank == begin / blocks) draw.take();
      const int from = max(begin - rank * blocks, 0), to = min(end - rank * blocks, blocks);
      if (!ANY_ROWS && count <= 8)
        down_blocks<K, BOOK, DEPTH, 1>(problem, shared, rank, from, to, first_row, count, ring, walk, shared_address(fragments), sums);
      else if (!ANY_ROWS && count <= 16)
        down_blocks<K, BOOK, DEPTH, 2>(problem, shared, rank, from, to, first_row, count, ring, walk, shared_address(fragments), sums);
      else
        down_blocks<K, BOOK, DEPTH, 4>(problem, shared, rank, from, to, first_row, count, ring, walk, shared_address(fragments), sums);
    }
  }
  MARK(10);
  if (begin < end) combine_complete(problem, shared, begin, end);
  MARK(11);
  draw.publish();
}

template <int K, Codebook BOOK, int DEPTH, bool ANY_ROWS>
__device__ __forceinline__ void work(const Problem& problem, Shared& shared, int ticket, uint32_t ring, uint8_t* fragments, float* sums) {
  if (ticket < problem.chunks)
    gate_up<K, BOOK, DEPTH, ANY_ROWS>(problem, shared, ticket, ring, fragments);
  else
    down<K, BOOK, DEPTH, ANY_ROWS>(problem, shared, ticket - problem.chunks, ring, fragments, sums);
}

__host__ __device__ constexpr int align_up(int bytes) { return (bytes + 127) / 128 * 128; }
__host__ __device__ constexpr int depth_of(int bits) { return bits ? CARVE_DEPTH : 3; }
constexpr int sums_bytes = align_up(halves * sums_rows * sums_stride * 4), shared_bytes = align_up(sizeof(Shared));
__host__ __device__ constexpr int ring_bytes(int bits) { return align_up(depth_of(bits) * ring_item_bytes(bits ? bits : 8, tiles)); }  // of a warp

// BITS: of all three matrices; 0: any, told by the problem.
template <int BITS, Codebook BOOK>
__global__ void __launch_bounds__(threads, BITS ? blocks_per_sm : 1) routed_experts(const __grid_constant__ Problem problem) {
  extern __shared__ __align__(128) uint8_t memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  float* sums = reinterpret_cast<float*>(memory + shared_bytes);
  const uint32_t ring = shared_address(memory + shared_bytes + sums_bytes) + threadIdx.x / 32 * ring_bytes(BITS);
  uint8_t* fragments = memory + shared_bytes + sums_bytes + warps * ring_bytes(BITS);
  MARK(0);
  unsigned long long number = 0;
  if (threadIdx.x == 0) number = atomicAdd(problem.ticket, 1ull);
  plan_routes<threads>(shared.routes, *reinterpret_cast<RoutesWork*>(fragments), problem.ids, problem.rows, problem.topk, problem.experts);
  if (threadIdx.x == 0) {
    const unsigned long long tickets = 2ull * problem.chunks + gridDim.x, launch = number / tickets;
    shared.first_ticket = launch * tickets;
    shared.launch = (launch + 1) * max_configurations + problem.configuration;
    shared.ticket = static_cast<int>(number - launch * tickets);
    if (blockIdx.x == 0) count_launch(problem.layer, problem.rows);
  }
  MARK(1);
  // A row without an expert on this rank has nobody to finish it.
  for (int row = blockIdx.x; row < problem.rows; row += gridDim.x)
    if (shared.routes.experts_of_row[row] == 0)
      for (int at = threadIdx.x * 4; at < problem.hidden; at += threads * 4)
        write_output(problem, int64_t(row) * problem.hidden + at, make_float4(0.0f, 0.0f, 0.0f, 0.0f));
  __syncthreads();
  for (int ticket = shared.ticket; ticket < 2 * problem.chunks; ticket = shared.ticket) {
    __syncthreads();
    if constexpr (BITS > 0) {
      work<BITS, BOOK, depth_of(BITS), false>(problem, shared, ticket, ring, fragments, sums);
    } else {
      const int matrix = ticket >= problem.chunks ? 2 : threadIdx.x / 32 / (warps / 2);
      switch (matrix == 0 ? problem.matrices[0].bits : matrix == 1 ? problem.matrices[1].bits : problem.matrices[2].bits) {
        case 1: work<1, BOOK, depth_of(0), true>(problem, shared, ticket, ring, fragments, sums); break;
        case 2: work<2, BOOK, depth_of(0), true>(problem, shared, ticket, ring, fragments, sums); break;
        case 3: work<3, BOOK, depth_of(0), true>(problem, shared, ticket, ring, fragments, sums); break;
        case 4: work<4, BOOK, depth_of(0), true>(problem, shared, ticket, ring, fragments, sums); break;
        case 5: work<5, BOOK, depth_of(0), true>(problem, shared, ticket, ring, fragments, sums); break;
        case 6: work<6, BOOK, depth_of(0), true>(problem, shared, ticket, ring, fragments, sums); break;
        case 7: work<7, BOOK, depth_of(0), true>(problem, shared, ticket, ring, fragments, sums); break;
        default: work<8, BOOK, depth_of(0), true>(problem, shared, ticket, ring, fragments, sums); break;
      }
    }
  }
}

// The host's side.

using Kernel = void (*)(Problem);

struct Device {
  int processors, shared_per_processor, shared_per_block, shared_reserved;
  bool known;
};

constexpr int max_devices = 64, max_waves = 4;

Device devices[max_devices];
thread_local char last_error[256] = "";

int failed(cudaError_t error) {
  snprintf(last_error, sizeof last_error, "%s: %s", cudaGetErrorName(error), cudaGetErrorString(error));
  return CARVE_CUDA_RUNTIME;
}

cudaError_t current_device(Device& device) {
  int number = 0;
  if (cudaError_t error = cudaGetDevice(&number)) return error;
  if (number >= max_devices) return cudaErrorInvalidDevice;
  Device& known = devices[number];
  if (!known.known) {
    Device found = {};
    if (cudaError_t error = cudaDeviceGetAttribute(&found.processors, cudaDevAttrMultiProcessorCount, number)) return error;
    if (cudaError_t error = cudaDeviceGetAttribute(&found.shared_per_processor, cudaDevAttrMaxSharedMemoryPerMultiprocessor, number)) return error;
    if (cudaError_t error = cudaDeviceGetAttribute(&found.shared_per_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, number)) return error;
    if (cudaError_t error = cudaDeviceGetAttribute(&found.shared_reserved, cudaDevAttrReservedSharedMemoryPerBlock, number)) return error;
    found.known = true;
    known = found;
  }
  device = known;
  return cudaSuccess;
}

// What a launch looks like on a device: derived from its properties, two numbers tuned.
struct Configuration {
  int blocks, fragments, waves;
  int shared_bytes;
};

int tuned(const char* name, int fallback) {
  const char* text = getenv(name);
  return text && atoi(text) > 0 ? atoi(text) : fallback;
}

Configuration configure(const Device& device, int bits, int rows) {
  const int fixed = shared_bytes + sums_bytes + warps * ring_bytes(bits), least = fixed + min_fragments * fragment_bytes;
  int resident = bits ? blocks_per_sm : 1;
  while (resident > 1 && device.shared_per_processor / resident - device.shared_reserved < least) resident--;
  int available = device.shared_per_processor / resident - device.shared_reserved;
  if (available > device.shared_per_block) available = device.shared_per_block;
  Configuration found = {};
  found.blocks = device.processors * resident;
  found.waves = tuned("CARVE_CUDA_WAVES", rows <= 1 ? 1 : 1);
  if (found.waves > max_waves) found.waves = max_waves;
  found.fragments = available < least ? 0 : (available - fixed) / fragment_bytes;
  found.shared_bytes = fixed + found.fragments * fragment_bytes;
  return found;
}

template <Codebook BOOK>
Kernel kernel_of(int bits) {
  switch (bits) {
    case 2: return routed_experts<2, BOOK>;
#ifndef CARVE_TUNED_ONLY
    case 3: return routed_experts<3, BOOK>;
    default: return routed_experts<0, BOOK>;
#else
    default: return routed_experts<3, BOOK>;
#endif
  }
}

Kernel kernel_of(int bits, int codebook) {
#ifndef CARVE_TUNED_ONLY
  if (codebook == CARVE_CODEBOOK_DEFAULT) return kernel_of<Codebook::standard>(bits);
  if (codebook == CARVE_CODEBOOK_MUL1) return kernel_of<Codebook::mul1>(bits);
#endif
  return kernel_of<Codebook::mcg>(bits);
}

bool is_bits(int bits) { return bits >= 1 && bits <= 8; }

Matrices matrices_of(const carve_cuda_experts& experts) { return {experts.trellis, experts.suh, experts.svh, experts.bits}; }

int check(const carve_cuda_moe_call& call) {
  if (call.abi_version != CARVE_CUDA_ABI_VERSION) return CARVE_CUDA_BAD_CALL;
  if (call.layer < 0 || call.layer >= CARVE_MAX_LAYERS || call.rows < 1 || call.topk < 1 || call.experts < 1) return CARVE_CUDA_BAD_CALL;
  if (!call.x || !call.ids || !call.weights || !call.out || !call.scratch) return CARVE_CUDA_BAD_CALL;
  for (const carve_cuda_experts* each : {&call.gate, &call.up, &call.down})
    if (!each->trellis || !each->suh || !each->svh) return CARVE_CUDA_BAD_CALL;
  if (reinterpret_cast<uintptr_t>(call.x) % 8 || reinterpret_cast<uintptr_t>(call.out) % 16 || reinterpret_cast<uintptr_t>(call.scratch) % 128)
    return CARVE_CUDA_BAD_CALL;
  if (call.x_type != CARVE_BFLOAT16 && call.x_type != CARVE_FLOAT16) return CARVE_CUDA_BAD_CALL;
  if (call.out_type < CARVE_FLOAT32 || call.out_type > CARVE_FLOAT16) return CARVE_CUDA_BAD_CALL;
  if (call.rows > CARVE_CUDA_MAX_ROWS) return CARVE_DECLINE_ROWS_ABOVE;
  if (call.hidden < 128 || call.hidden % 128 || call.hidden > int(max_hidden)) return CARVE_DECLINE_SHAPE;
  if (call.intermediate < 128 || call.intermediate % 128 || call.intermediate / 128 > min_fragments) return CARVE_DECLINE_SHAPE;
  if (call.topk > CARVE_CUDA_MAX_TOPK || call.experts > CARVE_CUDA_MAX_EXPERTS) return CARVE_DECLINE_SHAPE;
  if (!is_bits(call.gate.bits) || !is_bits(call.up.bits) || !is_bits(call.down.bits)) return CARVE_DECLINE_BITS;
  if (call.gate.codebook < 0 || call.gate.codebook > CARVE_CODEBOOK_MUL1) return CARVE_DECLINE_CODEBOOK;
  if (call.up.codebook != call.gate.codebook || call.down.codebook != call.gate.codebook) return CARVE_DECLINE_CODEBOOK;
  return CARVE_OK;
}

// Scratch: the control part, alike for all shapes, then partial sums and results.
struct Scratch {
  uint64_t results_at, bytes;
};

Scratch scratch_of(int chunks, int rows, int hidden, int intermediate, int topk, int experts) {
  const uint64_t pairs = uint64_t(rows) * (topk < experts ? topk : experts), slices = intermediate / 128;
  const uint64_t partial_rows = pairs * slices + uint64_t(chunks) * rows;
  const uint64_t results_at = data_at + partial_rows * 256 * 4;
  return {results_at, results_at + pairs * hidden * 4};
}

}  // namespace carve

using namespace carve;

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT uint64_t carve_cuda_moe_scratch(int32_t rows, int32_t hidden, int32_t intermediate, int32_t topk, int32_t experts) {
  Device device;
  if (cudaError_t error = current_device(device)) return failed(error), 0;
  return scratch_of(device.processors * blocks_per_sm * max_waves, rows, hidden, intermediate, topk, experts).bytes;
}

EXPORT int carve_cuda_moe_forward(const carve_cuda_moe_call* call) {
  if (int status = check(*call)) return status;
  Device device;
  if (cudaError_t error = current_device(device)) return failed(error);
  const bool same = call->gate.bits == call->up.bits && call->gate.bits == call->down.bits;
  const int bits = same && (call->gate.bits == 2 || call->gate.bits == 3) ? call->gate.bits : 0;
  const Configuration configuration = configure(device, bits, call->rows);
  if (configuration.fragments < min_fragments) return CARVE_DECLINE_PROCESSOR;
  const int chunks = configuration.blocks * configuration.waves;
  const int pairs = call->rows * (call->topk < call->experts ? call->topk : call->experts), slices = call->intermediate / 128;
  if (uint64_t(pairs) * slices + chunks > max_flags) return CARVE_DECLINE_SHAPE;
  if (uint64_t(pairs) * slices * (call->hidden / 64) * chunks > UINT32_MAX || uint64_t(pairs) * (call->hidden / 128) * chunks > UINT32_MAX)
    return CARVE_DECLINE_SHAPE;
  const Scratch scratch = scratch_of(chunks, call->rows, call->hidden, call->intermediate, call->topk, call->experts);
  if (call->scratch_bytes < scratch.bytes) return CARVE_CUDA_BAD_CALL;
  uint8_t* base = static_cast<uint8_t*>(call->scratch);
  Problem problem = {};
  problem.x = call->x, problem.ids = call->ids, problem.weights = call->weights, problem.out = call->out;
  problem.matrices[0] = matrices_of(call->gate), problem.matrices[1] = matrices_of(call->up), problem.matrices[2] = matrices_of(call->down);
  problem.configuration = (bits ? 0 : max_waves) + configuration.waves;
  problem.ticket = reinterpret_cast<unsigned long long*>(base) + problem.configuration;
  problem.arrivals = reinterpret_cast<uint32_t*>(base + arrivals_at);
  problem.flags = reinterpret_cast<unsigned long long*>(base + flags_at);
  problem.partial = reinterpret_cast<float*>(base + data_at);
  problem.results = reinterpret_cast<float*>(base + scratch.results_at);
  problem.layer = call->layer, problem.rows = call->rows, problem.hidden = call->hidden, problem.intermediate = call->intermediate;
  problem.topk = call->topk, problem.experts = call->experts, problem.limit = call->limit;
  problem.chunks = chunks, problem.fragments = configuration.fragments;
  problem.x_type = call->x_type, problem.out_type = call->out_type;
  const Kernel kernel = kernel_of(bits, call->gate.codebook);
  if (cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, configuration.shared_bytes)) return failed(error);
  kernel<<<configuration.blocks, threads, configuration.shared_bytes, static_cast<cudaStream_t>(call->stream)>>>(problem);
  if (cudaError_t error = cudaGetLastError()) return failed(error);
  return CARVE_OK;
}

EXPORT const carve_layer_counters* carve_cuda_counters(void) {
  void* address = nullptr;
  if (cudaError_t error = cudaGetSymbolAddress(&address, layer_counters)) return failed(error), nullptr;
  return static_cast<const carve_layer_counters*>(address);
}

EXPORT const char* carve_cuda_describe(void) {
  static thread_local char text[512];
  Device device;
  if (cudaError_t error = current_device(device)) return failed(error), "";
  int used = snprintf(text, sizeof text, "{\"name\": \"%s\", \"processors\": %d, \"warps\": %d, \"depth\": %d", CARVE_NAME, device.processors, warps, CARVE_DEPTH);
  for (int bits : {2, 3, 0}) {
    const Configuration each = configure(device, bits, 4);
    used += snprintf(text + used, sizeof text - used, ", \"k%d\": {\"blocks\": %d, \"waves\": %d, \"fragments\": %d, \"shared_bytes\": %d}", bits,
                     each.blocks, each.waves, each.fragments, each.shared_bytes);
  }
  snprintf(text + used, sizeof text - used, "}");
  return text;
}

#ifdef CARVE_CLOCKS
EXPORT const void* carve_cuda_clocks(void) {
  void* address = nullptr;
  return cudaGetSymbolAddress(&address, carve_clocks) ? nullptr : address;
}
#endif

EXPORT const char* carve_cuda_last_error(void) { return last_error; }
