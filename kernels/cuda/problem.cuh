// What the chunks of lna2 share: the problem, its chunks, tickets and the walk of a warp through the bytes of a chunk.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "counters.cuh"
#include "hadamard.cuh"
#include "routes.cuh"
#include "stream.cuh"

#ifndef CARVE_BLOCKS
#define CARVE_BLOCKS 2
#endif
#ifndef CARVE_DEPTH
#define CARVE_DEPTH 3
#endif

// Phase clocks of every block's first two chunks, for the desk.
#ifdef CARVE_CLOCKS
__device__ unsigned long long carve_clocks[1024][16];  // cycles left until 2^62: the first reading is the largest; nobody waits for it
#define MARK(number) \
  if (threadIdx.x == 0) atomicMax(&carve_clocks[blockIdx.x][number], (1ull << 62) - clock64())
#else
#define MARK(number)
#endif

namespace carve {

#ifdef CARVE_PAIRED
constexpr bool paired = true;
#else
constexpr bool paired = false;
#endif

constexpr int warps = 8, threads = warps * 32, blocks_per_sm = CARVE_BLOCKS;
constexpr int few_rows = 2;                              // up to here a kernel of its own, one block a processor
constexpr int tiles = 2;                                 // neighbouring columns of tiles of one warp
constexpr int halves = 2;                                // warps that share columns in down, each with half of the inputs
constexpr int fragment_bytes = 576;                      // B fragments of a row's 128 inputs; 64 of it keep banks apart
constexpr int min_fragments = 2 * CARVE_CUDA_MAX_ROWS;   // gate and up of one block of inputs for every row
constexpr int max_segments = 16;
template <int GROUPS>                                    // of down's sums that shared memory holds at once
constexpr int sums_rows = GROUPS == 1 ? 16 : 8 * GROUPS;
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
  int rows_at_once;      // of an expert whose activations fit into the fragments
  int configuration;     // number of the ticket counter
  float limit;
  int x_type, out_type;
  Divisor by_topk, by_chunks, by_quads, by_slices, by_blocks;  // quads of a slice, slices and column blocks of an expert
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
  int ticket[2];  // the current and the next one, in turns
  int turn, complete_count;
  uint32_t complete[threads];  // row and column block whose experts are all in scratch
  unsigned long long first_ticket, launch;  // launch: what its flags hold
};

__device__ __forceinline__ const uint16_t* entry_of(Table table, int expert) {
  return reinterpret_cast<const uint16_t*>(__ldg(reinterpret_cast<const unsigned long long*>(table) + expert));
}

// Four halves.
__device__ __forceinline__ float4 floats(uint2 raw) {
  const float2 low = __half22float2(*reinterpret_cast<const __half2*>(&raw.x));
  const float2 high = __half22float2(*reinterpret_cast<const __half2*>(&raw.y));
  return make_float4(low.x, low.y, high.x, high.y);
}

__device__ __forceinline__ uint2 halves_at(const uint16_t* base, int at) { return __ldg(reinterpret_cast<const uint2*>(base + at)); }

// Brings the pointer tables near while the routes are planned: afterwards every chunk needs some entries at once. A warp has a
// table at a time. Returns false; only so that the compiler keeps the loads.
template <int THREADS>
__device__ __forceinline__ bool preload_tables(const Problem& problem) {
  const int lines = (problem.experts + 15) / 16;  // of 16 pointers
  bool found = false;
  for (int number = threadIdx.x / 32; number < 9; number += THREADS / 32) {
    const int kind = number % 3, matrix = number / 3;
    const Matrices& each = matrix == 0 ? problem.matrices[0] : matrix == 1 ? problem.matrices[1] : problem.matrices[2];
    const Table table = kind == 0 ? each.trellis : kind == 1 ? each.suh : each.svh;
    for (int line = threadIdx.x % 32; line < lines; line += 32) found |= reinterpret_cast<uintptr_t>(entry_of(table, line * 16)) == 1;
  }
  return found;
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

// Where a lane's four neighbouring inputs (4 lane .. 4 lane + 3) of a block of 128 lie among its B fragments (see
// exl3.cuh): two words here, two words 64 bytes on.
__device__ __forceinline__ uint32_t place_in_fragment() {
  const int lane = threadIdx.x % 32, quad = lane / 16, tile = lane / 4 % 4, k = lane % 4 * 4;
  return ((quad * 16 + tile) * 4 + k % 8 / 2 * 16 + k / 8 * 2) * 4;
}

template <Codebook BOOK>
__device__ __forceinline__ void write_fragments(uint8_t* fragment, const float (&value)[4]) {
  uint8_t* at = fragment + place_in_fragment();
  *reinterpret_cast<uint2*>(at) = make_uint2(operand<BOOK, paired>(value[0]), operand<BOOK, paired>(value[1]));
  *reinterpret_cast<uint2*>(at + 64) = make_uint2(operand<BOOK, paired>(value[2]), operand<BOOK, paired>(value[3]));
}

// Items 0 .. total of a phase in equal chunks; total * chunks is below 2^31 (checked by the host). The chunks beyond the
// number of items are empty.
__device__ __forceinline__ int begin_of_chunk(const Problem& problem, int chunk, int total) {
  return total < problem.chunks ? min(chunk, total) : problem.by_chunks.divide(chunk * total);
}

// Where the items of gate and up lie: which chunk has one.
struct Chunks {
  const int used;
  const Quotient by_total;

  __device__ __forceinline__ Chunks(const Problem& problem, int total) : used(min(total, problem.chunks)), by_total(total) {}

  __device__ __forceinline__ int with(int item) const { return by_total.divide((item + 1) * used - 1); }
};

// A slice is 128 gate and the same 128 up columns of an expert: hidden / 64 quads. Its rows of partial sums per chunk:
__device__ __forceinline__ int64_t partial_row(const Problem& problem, const Routes& routes, int rank, int slice_of_rank, int chunk) {
  const int slices = problem.intermediate / 128;
  return int64_t(routes.pairs_before[rank]) * slices + slice_of_rank * __popc(routes.rows[rank]) + int64_t(chunk) * problem.rows;
}

// The items of one warp in a chunk, in order. Runs are the quads of a slice (gate/up) or of a column block (down).
struct Walk {
  const uint8_t* source;
  int in_run, after_run;      // items left in this run and in the chunk after it
  int rank, part;             // part: slice of the rank, or column block
  int parts, full_run, first_quad, tile;
  uint32_t item_bytes, tile_bytes;
  Table trellis;

  // items: of the chunk from here; skip: of the run, that an earlier chunk has.
  __device__ __forceinline__ void open(const Routes& routes, int items, int skip) {
    const uint8_t* matrix = reinterpret_cast<const uint8_t*>(entry_of(trellis, routes.expert[rank]));
    source = matrix + uint64_t(first_quad + skip) * item_bytes + uint64_t(part * 8 + tile) * tile_bytes;
    in_run = min(full_run - skip, items);
    after_run = items - in_run;
  }

  __device__ __forceinline__ void step(const Routes& routes) {
    source += item_bytes;
    if (--in_run == 0 && after_run > 0) {
      if (++part == parts) part = 0, rank++;
      open(routes, after_run, 0);
    }
  }
};

template <int K, Codebook BOOK, int DEPTH>
struct Ring {
  uint32_t base;
  uint32_t read = 0, write = 0;  // bytes
  Copier<K, tiles> copier;
  static constexpr uint32_t item = ring_item_bytes(K, tiles);

  __device__ __forceinline__ Ring(uint32_t base, uint32_t row_bytes) : base(base), copier(row_bytes) {}

  __device__ __forceinline__ void fetch(Walk& walk, const Routes& routes) {
    if (walk.in_run > 0) {
      copier.copy(walk.source, base + write);
      walk.step(routes);
    }
    copy_commit();
    write = write + item == DEPTH * item ? 0 : write + item;
  }

  __device__ __forceinline__ void start(Walk& walk, const Routes& routes) {
#pragma unroll 1
    for (int i = 0; i < DEPTH - 1; i++) fetch(walk, routes);
  }

  // The words of the next quad, whose place is filled again.
  __device__ __forceinline__ void take(LaneWords<K> (&lane)[tiles], Walk& walk, const Routes& routes) {
    copy_wait<DEPTH - 2>();
    __syncwarp();
#pragma unroll
    for (int column = 0; column < tiles; column++) lane[column] = lane_words<K>(base + read, column);
    read = read + item == DEPTH * item ? 0 : read + item;
    fetch(walk, routes);
  }

  // operand: shared address of this lane's B fragments of quad 0; two quads are one block of inputs.
  template <int GROUPS>
  __device__ __forceinline__ void multiply(float (&sums)[tiles][GROUPS][4], Walk& walk, const Routes& routes, int begin, int end,
                                           const uint32_t (&operand)[GROUPS], uint32_t block_bytes) {
    uint32_t at[GROUPS];
#pragma unroll
    for (int group = 0; group < GROUPS; group++) at[group] = operand[group] + (begin >> 1) * block_bytes + (begin & 1) * 256;
#pragma unroll 1
    for (int quad = begin; quad < end; quad++) {
      LaneWords<K> lane[tiles];
      take(lane, walk, routes);
      Quad<K, tiles, GROUPS, BOOK, paired>::run(sums, lane, at);
      const uint32_t next = quad & 1 ? block_bytes - 256 : 256;
#pragma unroll
      for (int group = 0; group < GROUPS; group++) at[group] += next;
    }
  }
};

template <int VALUE>
struct Constant {
  static constexpr int value = VALUE;
};

// Calls the body with the number of groups of eight rows that `rows` need: 1, 2 or 4, of those between LEAST and MOST.
template <int LEAST, int MOST, typename BODY>
__device__ __forceinline__ void with_groups(int rows, BODY body) {
  if constexpr (LEAST == MOST) {
    body(Constant<MOST>());
  } else if (rows <= 8) {
    body(Constant<1>());
  } else if (MOST == 2 || rows <= 16) {
    body(Constant<2>());
  } else {
    body(Constant<MOST>());
  }
}

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

  // Before a barrier; after it every thread may read next_ticket().
  __device__ __forceinline__ void publish() {
    if (threadIdx.x != 0) return;
    if (number == ~0ull) take();
    shared.ticket[++shared.turn & 1] = static_cast<int>(number - shared.first_ticket);
  }
};

__host__ __device__ constexpr int align_up(int bytes) { return (bytes + 127) / 128 * 128; }
__host__ __device__ constexpr int depth_of(int bits) { return bits ? CARVE_DEPTH : 3; }
__host__ __device__ constexpr int sums_bytes(int groups) { return align_up(halves * (groups == 4 ? 32 : 16) * sums_stride * 4); }
constexpr int shared_bytes = align_up(sizeof(Shared));
__host__ __device__ constexpr int ring_bytes(int bits) { return align_up(depth_of(bits) * ring_item_bytes(bits ? bits : 8, tiles)); }  // of a warp

}  // namespace carve
