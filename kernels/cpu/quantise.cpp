// Trellis quantisation of EXL3 tiles on the CPU: the states whose decoded weights come nearest to given weights.
//
// A tile is a ring of 256 weights. The state of a position is 16 bits, of which its last 16 - K ("edge") are the first
// of the next state, so a path through the trellis is a chain of edges and a state (high << (16 - K) | edge) is reached
// from the edge (state >> K). Viterbi's algorithm keeps, for each of the 2^(16-K) edges, the least squared error of any
// path that ends there:
//
//     best[edge] = min over high of (value[state] - weight)^2 + last[state >> K]
//
// Neighbouring edges are the lanes of a vector: last[] is then contiguous with each entry repeated 2^K times, and value[]
// is laid out beforehand in the order in which it is read. The ring is closed as in QTIP (arXiv 2406.11235, section 4.2): a first, free pass over the seam finds the edge
// a good path has there (it starts half a ring earlier and ends half a ring later), a second pass starts and ends at it.
//
// The three instruction sets compile the same source with different vector widths and without contraction of multiply
// and add, so their results are identical to the bit; a tie goes to the smallest `high`.
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>

namespace {

constexpr int kRing = 256;
constexpr int kStates = 1 << 16;
constexpr int kPadding = 16;  // a vector load of repeated costs may read past the last edge

struct Scratch {
  std::unique_ptr<float[]> values;  // the codebook in reading order: [edges / width][2^bits][width]
  std::unique_ptr<float[]> costs[2];
  std::unique_ptr<uint8_t[]> back;  // [kRing][edges]: the `high` of the best path into an edge

  Scratch(const float* codebook, int bits, int width)
      : values(new float[kStates]),
        costs{std::unique_ptr<float[]>(new float[(kStates >> bits) + kPadding]()),
              std::unique_ptr<float[]>(new float[(kStates >> bits) + kPadding]())},
        back(new uint8_t[static_cast<size_t>(kRing) * (kStates >> bits)]) {
    float* next = values.get();
    for (int edge = 0; edge < kStates >> bits; edge += width)
      for (int high = 0; high < 1 << bits; ++high)
        for (int lane = 0; lane < width; ++lane) *next++ = codebook[high << (16 - bits) | (edge + lane)];
  }
};

using Step = void (*)(const float* values, float weight, const float* last, float* best, uint8_t* back);

}  // namespace

#define CARVE_WIDTH 1
namespace scalar {
#include "quantise_step.inc"
}
#undef CARVE_WIDTH

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2")
#define CARVE_WIDTH 8
namespace avx2 {
#include "quantise_step.inc"
}
#undef CARVE_WIDTH
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#define CARVE_WIDTH 16
namespace avx512 {
#include "quantise_step.inc"
}
#undef CARVE_WIDTH
#pragma GCC pop_options
#endif

namespace {

enum Isa { kScalar = 0, kAvx2 = 1, kAvx512 = 2 };

struct Kernel {
  const Step* steps;
  int width;
};

Kernel kernel_for(int isa) {
#if defined(__x86_64__)
  if (isa == kAvx512) return {avx512::steps, avx512::width};
  if (isa == kAvx2) return {avx2::steps, avx2::width};
#endif
  return {scalar::steps, scalar::width};
}

int least(const float* costs, int edges) {
  int found = 0;
  for (int edge = 1; edge < edges; ++edge)
    if (costs[edge] < costs[found]) found = edge;
  return found;
}

// Run `count` positions from `first` on; returns the costs after the last.
const float* run(Step step, const float* weights, Scratch& scratch, int edges, int first, int count) {
  for (int i = 0; i < count; ++i) {
    const int position = (first + i) % kRing;
    step(scratch.values.get(), weights[position], scratch.costs[i & 1].get(), scratch.costs[~i & 1].get(),
         scratch.back.get() + static_cast<size_t>(position) * edges);
  }
  return scratch.costs[count & 1].get();
}

// The state at `position` of the path that leaves it at `edge`; the edge it came by is state >> bits.
int state_at(const Scratch& scratch, int edges, int bits, int position, int edge) {
  return scratch.back[static_cast<size_t>(position) * edges + edge] << (16 - bits) | edge;
}

void quantise_tile(Step step, int bits, const float* weights, Scratch& scratch, uint16_t* states) {
  const int edges = kStates >> bits;
  float* start = scratch.costs[0].get();
  for (int edge = 0; edge < edges; ++edge) start[edge] = 0.0f;
  const float* costs = run(step, weights, scratch, edges, kRing / 2, kRing);
  int seam = least(costs, edges);
  for (int position = kRing / 2 - 1; position >= 0; --position)
    seam = state_at(scratch, edges, bits, position, seam) >> bits;

  for (int edge = 0; edge < edges; ++edge) start[edge] = std::numeric_limits<float>::infinity();
  start[seam] = 0.0f;
  run(step, weights, scratch, edges, 0, kRing);
  for (int position = kRing - 1, edge = seam; position >= 0; --position) {
    const int state = state_at(scratch, edges, bits, position, edge);
    states[position] = static_cast<uint16_t>(state);
    edge = state >> bits;
  }
}

}  // namespace

extern "C" {

// 0 scalar, 1 AVX2, 2 AVX-512: the best this processor has.
int carve_quantise_isa(void) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return kAvx512;
  if (__builtin_cpu_supports("avx2")) return kAvx2;
#endif
  return kScalar;
}

// tiles [count][256] weights in stream order; codebook [65536]; states [count][256] out. Returns 0, or -1 where an
// argument is out of range or the processor lacks `isa`.
int carve_quantise_tiles(const float* tiles, int64_t count, int bits, const float* codebook, int isa,
                         uint16_t* states) {
  if (bits < 1 || bits > 8 || count < 0 || isa < kScalar || isa > carve_quantise_isa()) return -1;
  const Kernel kernel = kernel_for(isa);
  Scratch scratch(codebook, bits, kernel.width);
  for (int64_t tile = 0; tile < count; ++tile)
    quantise_tile(kernel.steps[bits - 1], bits, tiles + tile * kRing, scratch, states + tile * kRing);
  return 0;
}
}
