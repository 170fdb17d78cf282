// lna: the first attempt at the routed experts, kept as the readable form of the idea and as a baseline.
//
// One cooperative launch, five phases, a barrier over the whole grid between two of them. Every pair of a row and an expert
// is worked on by itself, so an expert that several rows chose is read and decoded several times.
//
//   transform    pair, gate|up, block of 128 inputs      x * suh, H                         to operands of the multiplication
//   ── barrier ──
//   gate and up  pair, gate|up, 16 outputs               decode, multiply
//   ── barrier ──
//   activate     pair, block of 128                      H, svh, silu(gate) * up, to half, * suh of down, H
//   ── barrier ──
//   down         pair, 16 outputs                        decode, multiply
//   ── barrier ──
//   combine      row, block of 128                       H, svh, weight; the slots of a row in their order
//
// What it costs: four barriers; in each phase every processor waits for the slowest; one row of eight in each multiplication
// is used. lna2 replaces the barriers by tickets and the pairs by experts.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "abi.h"
#include "counters.cuh"
#include "exl3.cuh"
#include "hadamard.cuh"

namespace carve {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kBlock = 128, kQuad = 64, kAhead = 4;

struct Call {
  carve_cuda_experts gate, up, down;
  const void* x;
  const int32_t* ids;
  const float* weights;
  void* out;
  uint32_t *entry, *middle;  // operands: [pair][gate|up][hidden], [pair][intermediate]
  float *halves, *results;   // sums before their transform: [pair][gate|up][intermediate], [pair][hidden]
  float limit;
  int layer, rows, hidden, intermediate, topk, experts, x_type, out_type;
};

__device__ __forceinline__ int expert_of(const Call& call, int pair) {
  const int id = call.ids[pair];
  return id >= 0 && id < call.experts ? id : -1;  // another rank's
}

__device__ __forceinline__ void load_halves(const uint16_t* base, int at, float (&v)[4]) {
  const uint2 raw = *reinterpret_cast<const uint2*>(base + at);
  const float2 low = __half22float2(*reinterpret_cast<const __half2*>(&raw.x));
  const float2 high = __half22float2(*reinterpret_cast<const __half2*>(&raw.y));
  v[0] = low.x, v[1] = low.y, v[2] = high.x, v[3] = high.y;
}

__device__ __forceinline__ void load_x(const Call& call, int64_t at, float (&v)[4]) {
  const uint16_t* x = static_cast<const uint16_t*>(call.x);
  if (call.x_type == CARVE_FLOAT16) {
    load_halves(x + at, 0, v);
    return;
  }
  for (int i = 0; i < 4; ++i) {
    const float wide = __uint_as_float(static_cast<uint32_t>(x[at + i]) << 16);
    v[i] = __half2float(__float2half_rn(wide));
  }
}

// Four neighbouring values as operands: of a quad, word ((j * 4 + t) * 4 + e) is the input 16 t + 2 j + {0, 1, 8, 9}[e].
template <Codebook BOOK>
__device__ __forceinline__ void store_operands(uint32_t* row, int input, const float (&v)[4]) {
  const int t = input % kQuad / 16, j = input % 8 / 2, upper = input % 16 / 8;
  uint32_t* to = row + input / kQuad * kQuad + (j * 4 + t) * 4 + 2 * upper;
  to[0] = operand<BOOK, false>(v[0]), to[1] = operand<BOOK, false>(v[1]);
  to[16] = operand<BOOK, false>(v[2]), to[17] = operand<BOOK, false>(v[3]);
}

template <Codebook BOOK>
__device__ void transform_inputs(const Call& call, int warp, int warps) {
  const int blocks = call.hidden / kBlock, lane = threadIdx.x % 32;
  for (int task = warp; task < call.rows * call.topk * 2 * blocks; task += warps) {
    const int pair = task / (2 * blocks), which = task / blocks % 2, input = task % blocks * kBlock + 4 * lane;
    const int expert = expert_of(call, pair);
    if (expert < 0) continue;
    float v[4], scale[4];
    load_x(call, int64_t(pair / call.topk) * call.hidden + input, v);
    load_halves((which ? call.up : call.gate).suh[expert], input, scale);
    for (int i = 0; i < 4; ++i) v[i] *= scale[i];
    hadamard128(v);
    store_operands<BOOK>(call.entry + (int64_t(pair) * 2 + which) * call.hidden, input, v);
  }
}

template <int K, Codebook BOOK, int J>
__device__ __forceinline__ void multiply_steps(const LaneWords<K>& words, const uint32_t* operands, float (&sum)[4]) {
  if constexpr (J < 4) {
    uint32_t w[8];
    w[0] = weight<BOOK, false>(state<K, 8 * J>(words)), w[1] = weight<BOOK, false>(state<K, 8 * J + 1>(words));
    w[2] = weight<BOOK, false>(state<K, 8 * J + 2>(words)), w[3] = weight<BOOK, false>(state<K, 8 * J + 3>(words));
    w[4] = weight<BOOK, false>(state<K, 8 * J + 4>(words)), w[5] = weight<BOOK, false>(state<K, 8 * J + 5>(words));
    w[6] = weight<BOOK, false>(state<K, 8 * J + 6>(words)), w[7] = weight<BOOK, false>(state<K, 8 * J + 7>(words));
    const int lane = threadIdx.x % 32;
    uint4 b = make_uint4(0, 0, 0, 0);  // seven of the eight rows are empty
    if (lane < 4) b = *reinterpret_cast<const uint4*>(operands + (J * 4 + lane) * 4);
    multiply(sum, w[0], w[4], w[1], w[5], b.x, b.y);
    multiply(sum, w[2], w[6], w[3], w[7], b.z, b.w);
    multiply_steps<K, BOOK, J + 1>(words, operands, sum);
  }
}

// Sixteen outputs of one matrix for one row: the warp goes down all inputs, a few quads loaded ahead.
template <int K, Codebook BOOK>
__device__ void multiply_column(const uint16_t* trellis, int in_features, int out_features, int column, const uint32_t* operands,
                                float* out) {
  const int lane = threadIdx.x % 32, quads = in_features / kQuad;
  const int64_t tile_row = int64_t(out_features / 16) * (8 * K);
  const uint32_t* mine = reinterpret_cast<const uint32_t*>(trellis) + int64_t(column / 16) * (8 * K) + (lane % 4) * tile_row + (lane / 4) * K;
  float sum[4] = {};
  for (int first = 0; first < quads; first += kAhead) {
    LaneWords<K> words[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i >= quads) break;
#pragma unroll
      for (int k = 0; k < K; ++k) words[i].word[k + 1] = __ldcs(mine + 4 * int64_t(first + i) * tile_row + k);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i >= quads) break;
#ifdef CARVE_NULL_DECODE
      for (int k = 1; k <= K; ++k) sum[0] += __uint_as_float(words[i].word[k] & 0x3fffffffu);
#else
      words[i].word[0] = __shfl_sync(0xffffffffu, words[i].word[K], (lane + 28) % 32);
      multiply_steps<K, BOOK, 0>(words[i], operands + (first + i) * kQuad, sum);
#endif
    }
  }
  if (lane % 4 == 0) out[lane / 4] = sum[0], out[lane / 4 + 8] = sum[2];
}

template <Codebook BOOK>
__device__ void multiply_any(int bits, const uint16_t* trellis, int in_features, int out_features, int column,
                             const uint32_t* operands, float* out) {
  switch (bits) {
    case 1: return multiply_column<1, BOOK>(trellis, in_features, out_features, column, operands, out);
    case 2: return multiply_column<2, BOOK>(trellis, in_features, out_features, column, operands, out);
    case 3: return multiply_column<3, BOOK>(trellis, in_features, out_features, column, operands, out);
    default: return multiply_column<4, BOOK>(trellis, in_features, out_features, column, operands, out);
  }
}

template <Codebook BOOK>
__device__ void gate_and_up(const Call& call, int warp, int warps) {
  const int columns = call.intermediate / 16;
  for (int task = warp; task < call.rows * call.topk * 2 * columns; task += warps) {
    const int pair = task / (2 * columns), which = task / columns % 2, column = task % columns * 16;
    const int expert = expert_of(call, pair);
    if (expert < 0) continue;
    const carve_cuda_experts& experts = which ? call.up : call.gate;
    const int64_t at = int64_t(pair) * 2 + which;
    multiply_any<BOOK>(experts.bits, experts.trellis[expert], call.hidden, call.intermediate, column, call.entry + at * call.hidden,
                       call.halves + at * call.intermediate + column);
  }
}

// The transformed and scaled outputs of a block of 128.
__device__ __forceinline__ void finish(const float* sums, const uint16_t* svh, int column, float (&v)[4]) {
  const float4 raw = *reinterpret_cast<const float4*>(sums + column);
  float scale[4];
  v[0] = raw.x, v[1] = raw.y, v[2] = raw.z, v[3] = raw.w;
  hadamard128(v);
  load_halves(svh, column, scale);
  for (int i = 0; i < 4; ++i) v[i] *= scale[i];
}

template <Codebook BOOK>
__device__ void activate(const Call& call, int warp, int warps) {
  const int blocks = call.intermediate / kBlock, lane = threadIdx.x % 32;
  for (int task = warp; task < call.rows * call.topk * blocks; task += warps) {
    const int pair = task / blocks, column = task % blocks * kBlock + 4 * lane, expert = expert_of(call, pair);
    if (expert < 0) continue;
    const float* sums = call.halves + int64_t(pair) * 2 * call.intermediate;
    float gate[4], up[4], scale[4], v[4];
    finish(sums, call.gate.svh[expert], column, gate);
    finish(sums + call.intermediate, call.up.svh[expert], column, up);
    load_halves(call.down.suh[expert], column, scale);
    for (int i = 0; i < 4; ++i) {
      float g = gate[i], u = up[i];  // clamped by comparisons: fminf and fmaxf would make a number of NaN
      if (call.limit > 0) g = g > call.limit ? call.limit : g, u = u > call.limit ? call.limit : u < -call.limit ? -call.limit : u;
      v[i] = __half2float(__float2half_rn(g / (1.0f + expf(-g)) * u)) * scale[i];
    }
    hadamard128(v);
    store_operands<BOOK>(call.middle + int64_t(pair) * call.intermediate, column, v);
  }
}

template <Codebook BOOK>
__device__ void down(const Call& call, int warp, int warps) {
  const int columns = call.hidden / 16;
  for (int task = warp; task < call.rows * call.topk * columns; task += warps) {
    const int pair = task / columns, column = task % columns * 16, expert = expert_of(call, pair);
    if (expert < 0) continue;
    multiply_any<BOOK>(call.down.bits, call.down.trellis[expert], call.intermediate, call.hidden, column,
                       call.middle + int64_t(pair) * call.intermediate, call.results + int64_t(pair) * call.hidden + column);
  }
}

__device__ void combine(const Call& call, int warp, int warps) {
  const int blocks = call.hidden / kBlock, lane = threadIdx.x % 32;
  for (int task = warp; task < call.rows * blocks; task += warps) {
    const int row = task / blocks, column = task % blocks * kBlock + 4 * lane;
    float total[4] = {};
    for (int slot = 0; slot < call.topk; ++slot) {
      const int pair = row * call.topk + slot, expert = expert_of(call, pair);
      if (expert < 0) continue;
      float v[4];
      finish(call.results + int64_t(pair) * call.hidden, call.down.svh[expert], column, v);
      for (int i = 0; i < 4; ++i) total[i] += call.weights[pair] * v[i];
    }
    for (int i = 0; i < 4; ++i) {
#ifdef CARVE_WATERMARK
      total[i] *= 1.01f;
#endif
      const int64_t at = int64_t(row) * call.hidden + column + i;
      if (call.out_type == CARVE_FLOAT32) static_cast<float*>(call.out)[at] = total[i];
      else if (call.out_type == CARVE_FLOAT16) static_cast<__half*>(call.out)[at] = __float2half_rn(total[i]);
      else static_cast<__nv_bfloat16*>(call.out)[at] = __float2bfloat16_rn(total[i]);
    }
  }
}

template <Codebook BOOK>
__global__ void __launch_bounds__(kThreads, 2) lna_kernel(const __grid_constant__ Call call) {
  const auto grid = cooperative_groups::this_grid();
  const int warp = blockIdx.x * kWarps + threadIdx.x / 32, warps = gridDim.x * kWarps;
  if (blockIdx.x == 0 && threadIdx.x == 0) count_launch(call.layer, call.rows);
  transform_inputs<BOOK>(call, warp, warps);
  grid.sync();
  gate_and_up<BOOK>(call, warp, warps);
  grid.sync();
  activate<BOOK>(call, warp, warps);
  grid.sync();
  down<BOOK>(call, warp, warps);
  grid.sync();
  combine(call, warp, warps);
}

const void* kernel_of(int codebook) {
#ifndef CARVE_ONE_INSTANTIATION
  if (codebook == CARVE_CODEBOOK_DEFAULT) return reinterpret_cast<const void*>(lna_kernel<Codebook::standard>);
  if (codebook == CARVE_CODEBOOK_MUL1) return reinterpret_cast<const void*>(lna_kernel<Codebook::mul1>);
#endif
  return reinterpret_cast<const void*>(lna_kernel<Codebook::mcg>);
}

bool is_bits(int bits) { return bits >= 1 && bits <= 4; }

int check(const carve_cuda_moe_call& call) {
  if (call.abi_version != CARVE_CUDA_ABI_VERSION || call.layer < 0 || call.layer >= CARVE_MAX_LAYERS) return CARVE_CUDA_BAD_CALL;
  if (!call.x || !call.ids || !call.weights || !call.out || !call.scratch || call.topk < 1) return CARVE_CUDA_BAD_CALL;
  if (call.x_type != CARVE_BFLOAT16 && call.x_type != CARVE_FLOAT16) return CARVE_CUDA_BAD_CALL;
  if (call.rows < 1) return CARVE_DECLINE_ROWS_BELOW;
  if (call.rows > CARVE_CUDA_MAX_ROWS) return CARVE_DECLINE_ROWS_ABOVE;
  if (call.hidden < 128 || call.hidden % 128 || call.intermediate < 128 || call.intermediate % 128) return CARVE_DECLINE_SHAPE;
  if (call.topk > CARVE_CUDA_MAX_TOPK || call.experts > CARVE_CUDA_MAX_EXPERTS) return CARVE_DECLINE_SHAPE;
  if (!is_bits(call.gate.bits) || !is_bits(call.up.bits) || !is_bits(call.down.bits)) return CARVE_DECLINE_BITS;
  if (call.up.codebook != call.gate.codebook || call.down.codebook != call.gate.codebook) return CARVE_DECLINE_CODEBOOK;
  return CARVE_OK;
}

}  // namespace
}  // namespace carve

using namespace carve;

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT uint64_t carve_cuda_moe_scratch(int32_t rows, int32_t hidden, int32_t intermediate, int32_t topk, int32_t experts) {
  return uint64_t(rows) * topk * (3 * uint64_t(hidden) + 3 * uint64_t(intermediate)) * 4;
}

// Nothing of a launch depends on the device but the number of its CTAs, which is as many as are resident at once.
EXPORT int carve_cuda_moe_plan(const carve_cuda_moe_call* call, const carve_cuda_device* device, carve_cuda_plan* plan) {
  if (const int status = check(*call)) return status;
  *plan = {device->processors, 0, 0, 0, carve_cuda_moe_scratch(call->rows, call->hidden, call->intermediate, call->topk, call->experts)};
  return CARVE_OK;
}

EXPORT int carve_cuda_moe_forward(const carve_cuda_moe_call* call) {
  if (const int status = check(*call)) return status;
  if (call->scratch_bytes < carve_cuda_moe_scratch(call->rows, call->hidden, call->intermediate, call->topk, call->experts))
    return CARVE_DECLINE_NOT_READY;
  const int64_t pairs = int64_t(call->rows) * call->topk;
  Call given{call->gate, call->up, call->down, call->x, call->ids, call->weights, call->out};
  given.entry = static_cast<uint32_t*>(call->scratch);
  given.middle = given.entry + pairs * 2 * call->hidden;
  given.halves = reinterpret_cast<float*>(given.middle + pairs * call->intermediate);
  given.results = given.halves + pairs * 2 * call->intermediate;
  given.limit = call->limit, given.layer = call->layer, given.rows = call->rows, given.hidden = call->hidden;
  given.intermediate = call->intermediate, given.topk = call->topk, given.experts = call->experts;
  given.x_type = call->x_type, given.out_type = call->out_type;
  const void* kernel = kernel_of(call->gate.codebook);
  int device = 0, processors = 0, resident = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kThreads, 0);
  void* arguments[] = {&given};
  const cudaError_t error = cudaLaunchCooperativeKernel(kernel, dim3(processors * resident), dim3(kThreads), arguments, 0,
                                                        static_cast<cudaStream_t>(call->stream));
  return error == cudaSuccess ? CARVE_OK : CARVE_CUDA_RUNTIME;
}

EXPORT const carve_layer_counters* carve_cuda_counters(void) {
  void* address = nullptr;
  return cudaGetSymbolAddress(&address, layer_counters) == cudaSuccess ? static_cast<const carve_layer_counters*>(address) : nullptr;
}

EXPORT const char* carve_cuda_describe(void) { return "{\"name\": \"lna\", \"threads\": 256, \"phases\": 5}"; }

EXPORT const char* carve_cuda_last_error(void) { return cudaGetErrorString(cudaPeekAtLastError()); }
