// dense: a group of EXL3 linears that share an input, in one launch (K 2..8, 1..32 rows).
//
//   grid  x: blocks of 128 outputs, over all parts of the group     y: splits of the inputs
//   CTA   eight warps, 16 outputs each; 256 inputs a pass
//
//   load a pass's bits              ███                                all into registers: 4 K words a lane, no staging
//   transform the rows (suh, H)     ░░░█████                           while the loads are under way; into shared memory
//   decode, multiply                        ███ ███ ███ ███            a quad of 64 inputs at a time
//   add the splits                                         ░░██        the last CTA of a block of outputs: in order, H, svh
//
// No CTA waits for another: whoever arrives last finds all sums in scratch. The order of the addition does not depend on who
// it is, so repeats are bitwise equal, and the control words are zero again afterwards.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "abi_dense.h"
#include "exl3.cuh"
#include "hadamard.cuh"

namespace carve {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kBlock = 128, kQuad = 64, kQuads = 4, kPass = kQuad * kQuads;
constexpr int kRowWords = kPass + 16;  // of a row of x in shared memory; the 16 keep two rows off each other's banks
constexpr int kMaxPasses = 4;
constexpr int kAtOnce = 8;  // partial sums that a lane of the last CTA loads together

struct Launch {
  carve_dense_part part[CARVE_DENSE_PARTS];
  const void* x;
  float* sums;         // [block of outputs][split][rows][128]
  uint32_t* arrivals;  // [block of outputs]
  unsigned long long* counters;
  int rows, in_features, passes, x_type, out_type;
};

__device__ __forceinline__ float2 halves(uint32_t bits) { return __half22float2(*reinterpret_cast<const __half2*>(&bits)); }

__device__ __forceinline__ void load_halves(const void* base, size_t at, float (&v)[4]) {
  const uint2 raw = *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(base) + at);
  const float2 low = halves(raw.x), high = halves(raw.y);
  v[0] = low.x, v[1] = low.y, v[2] = high.x, v[3] = high.y;
}

// Four neighbouring inputs, rounded to half: the numeric boundary at entry.
__device__ __forceinline__ void load_x(const Launch& call, size_t at, float (&v)[4]) {
  if (call.x_type == CARVE_FLOAT16) return load_halves(call.x, at, v);
  if (call.x_type == CARVE_FLOAT32) {
    const float4 raw = *reinterpret_cast<const float4*>(static_cast<const float*>(call.x) + at);
    v[0] = raw.x, v[1] = raw.y, v[2] = raw.z, v[3] = raw.w;
  } else {
    const uint2 raw = *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(call.x) + at);
    const float2 low = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&raw.x));
    const float2 high = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&raw.y));
    v[0] = low.x, v[1] = low.y, v[2] = high.x, v[3] = high.y;
  }
  for (float& each : v) each = __half2float(__float2half_rn(each));
}

__device__ __forceinline__ void store(void* out, int type, size_t at, const float (&v)[4]) {
  if (type == CARVE_FLOAT32) {
    *reinterpret_cast<float4*>(static_cast<float*>(out) + at) = make_float4(v[0], v[1], v[2], v[3]);
  } else if (type == CARVE_FLOAT16) {
    __half2* to = reinterpret_cast<__half2*>(static_cast<__half*>(out) + at);
    to[0] = __floats2half2_rn(v[0], v[1]), to[1] = __floats2half2_rn(v[2], v[3]);
  } else {
    __nv_bfloat162* to = reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(out) + at);
    to[0] = __floats2bfloat162_rn(v[0], v[1]), to[1] = __floats2bfloat162_rn(v[2], v[3]);
  }
}

// The lane's K words of every quad of a pass; the word before them in the ring is the last of the lane four below.
template <int K>
__device__ __forceinline__ void load_pass(const uint32_t* column, size_t tile_row, int quads, LaneWords<K> (&words)[kQuads]) {
  const int lane = threadIdx.x % 32;
  const uint32_t* mine = column + (lane % 4) * tile_row + (lane / 4) * K;
#pragma unroll
  for (int quad = 0; quad < kQuads; ++quad) {
    if (quad >= quads) break;
    const uint32_t* from = mine + 4 * quad * tile_row;
    if constexpr (K % 4 == 0) {
#pragma unroll
      for (int i = 0; i < K; i += 4) {
        const uint4 four = __ldcs(reinterpret_cast<const uint4*>(from + i));
        words[quad].word[i + 1] = four.x, words[quad].word[i + 2] = four.y;
        words[quad].word[i + 3] = four.z, words[quad].word[i + 4] = four.w;
      }
    } else if constexpr (K % 2 == 0) {
#pragma unroll
      for (int i = 0; i < K; i += 2) {
        const uint2 two = __ldcs(reinterpret_cast<const uint2*>(from + i));
        words[quad].word[i + 1] = two.x, words[quad].word[i + 2] = two.y;
      }
    } else {
#pragma unroll
      for (int i = 0; i < K; ++i) words[quad].word[i + 1] = __ldcs(from + i);
    }
  }
}

// The rows of a pass, scaled and transformed, as the B operand: of a quad, word ((j * 4 + t) * 4 + e) is the input
// 16 t + 2 j + {0, 1, 8, 9}[e]. Rows beyond the call's are zero.
template <Codebook BOOK, int GROUPS>
__device__ __forceinline__ void transform_rows(const Launch& call, const void* suh, int first, int blocks, uint32_t* rows) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // A warp keeps to one of the two blocks; the loads of its rows go out together, before the first is transformed.
  const int block = warp % 2, input = block * kBlock + 4 * lane;
  if (block >= blocks) return;
  float scale[4], v[2 * GROUPS][4] = {};
  load_halves(suh, first + input, scale);
#pragma unroll
  for (int i = 0; i < 2 * GROUPS; ++i) {
    const int row = warp / 2 + 4 * i;
    if (row < call.rows) load_x(call, static_cast<size_t>(row) * call.in_features + first + input, v[i]);
  }
  // Four neighbours from a multiple of four: two steps j, elements 0 and 1 of the lower or upper half of a tile.
  const int quad = input / kQuad, t = input % kQuad / 16, j = input % 8 / 2, upper = input % 16 / 8;
#pragma unroll
  for (int i = 0; i < 2 * GROUPS; ++i) {
    const int row = warp / 2 + 4 * i;
    if (row < call.rows) {
#pragma unroll
      for (int k = 0; k < 4; ++k) v[i][k] *= scale[k];
      hadamard128(v[i]);
    }
    uint32_t* to = rows + row * kRowWords + quad * kQuad + (j * 4 + t) * 4 + 2 * upper;
    *reinterpret_cast<uint2*>(to) = make_uint2(operand<BOOK, false>(v[i][0]), operand<BOOK, false>(v[i][1]));
    *reinterpret_cast<uint2*>(to + 16) = make_uint2(operand<BOOK, false>(v[i][2]), operand<BOOK, false>(v[i][3]));
  }
}

template <int K, Codebook BOOK, int GROUPS, int J>
__device__ __forceinline__ void multiply_steps(const LaneWords<K>& words, const uint32_t* rows, float (&sum)[GROUPS][4]) {
  if constexpr (J < 4) {
    uint32_t w[8];
    w[0] = weight<BOOK, false>(state<K, 8 * J>(words)), w[1] = weight<BOOK, false>(state<K, 8 * J + 1>(words));
    w[2] = weight<BOOK, false>(state<K, 8 * J + 2>(words)), w[3] = weight<BOOK, false>(state<K, 8 * J + 3>(words));
    w[4] = weight<BOOK, false>(state<K, 8 * J + 4>(words)), w[5] = weight<BOOK, false>(state<K, 8 * J + 5>(words));
    w[6] = weight<BOOK, false>(state<K, 8 * J + 6>(words)), w[7] = weight<BOOK, false>(state<K, 8 * J + 7>(words));
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
      const uint32_t* from = rows + (8 * group + lane / 4) * kRowWords + (J * 4 + lane % 4) * 4;
      const uint4 b = *reinterpret_cast<const uint4*>(from);
      multiply(sum[group], w[0], w[4], w[1], w[5], b.x, b.y);
      multiply(sum[group], w[2], w[6], w[3], w[7], b.z, b.w);
    }
    multiply_steps<K, BOOK, GROUPS, J + 1>(words, rows, sum);
  }
}

template <int K, Codebook BOOK, int GROUPS>
__device__ __forceinline__ void multiply_quad(LaneWords<K>& words, const uint32_t* rows, float (&sum)[GROUPS][4]) {
#ifdef CARVE_NULL_DECODE
  // The same loads; in place of decoding and multiplying an addition that keeps them alive.
  for (int i = 1; i <= K; ++i) sum[0][0] += __uint_as_float(words.word[i] & 0x3fffffffu);
#else
  words.word[0] = __shfl_sync(0xffffffffu, words.word[K], (threadIdx.x + 28) % 32);
  multiply_steps<K, BOOK, GROUPS, 0>(words, rows, sum);
#endif
}

// Adds the splits in their order, transforms, scales and writes: by the CTA that came last.
__device__ __forceinline__ void finish(const Launch& call, const carve_dense_part& part, int column, const float* sums,
                                       int splits) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float scale[4];
  load_halves(part.svh, column + 4 * lane, scale);
  for (int row = warp; row < call.rows; row += kWarps) {
    float v[4] = {};
    for (int first = 0; first < splits; first += kAtOnce) {
      float4 one[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const float* from = sums + (static_cast<size_t>(first + i) * call.rows + row) * kBlock + 4 * lane;
        one[i] = first + i < splits ? __ldcg(reinterpret_cast<const float4*>(from)) : float4{};
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) v[0] += one[i].x, v[1] += one[i].y, v[2] += one[i].z, v[3] += one[i].w;
    }
    hadamard128(v);
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] *= scale[i];
#ifdef CARVE_WATERMARK
    for (float& each : v) each *= 1.01f;
#endif
    store(part.out, call.out_type, static_cast<size_t>(row) * part.out_features + column + 4 * lane, v);
  }
}

template <int K, Codebook BOOK, int GROUPS>
__global__ void __launch_bounds__(kThreads, GROUPS == 4 ? 2 : 3) dense_kernel(const __grid_constant__ Launch call) {
  CARVE_SHARED(memory);
  uint32_t* rows = reinterpret_cast<uint32_t*>(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, splits = gridDim.y;
  int which = 0, block = blockIdx.x;
  while (block >= call.part[which].out_features / kBlock) block -= call.part[which++].out_features / kBlock;
  const carve_dense_part& part = call.part[which];
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0 && call.counters != nullptr) {
    atomicAdd(&call.counters[0], 1ull);
    atomicAdd(&call.counters[1 + call.rows], 1ull);
  }

  const size_t tile_row = static_cast<size_t>(part.out_features / 16) * (8 * K);  // words
  const int end = min(call.in_features, static_cast<int>((blockIdx.y + 1) * call.passes * kPass));
  float sum[GROUPS][4] = {};
  for (int first = blockIdx.y * call.passes * kPass; first < end; first += kPass) {
    const int quads = min(kQuads, (end - first) / kQuad);
    const uint32_t* column =
        static_cast<const uint32_t*>(part.trellis) + first / 16 * tile_row + static_cast<size_t>(block * kWarps + warp) * (8 * K);
    LaneWords<K> words[kQuads];
    load_pass<K>(column, tile_row, quads, words);
    __syncthreads();  // the last pass's rows are no longer read
    transform_rows<BOOK, GROUPS>(call, part.suh, first, quads / 2, rows);
    __syncthreads();
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
      if (quad < quads) multiply_quad<K, BOOK, GROUPS>(words[quad], rows + quad * kQuad, sum);
    }
  }

  float* sums = call.sums + static_cast<size_t>(blockIdx.x) * splits * call.rows * kBlock;
  float* mine = sums + static_cast<size_t>(blockIdx.y) * call.rows * kBlock + 16 * warp + lane / 4;
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = 8 * group + 2 * (lane % 4) + i % 2;
      if (row < call.rows) __stcg(mine + row * kBlock + 8 * (i / 2), sum[group][i]);
    }
  }
  __threadfence();
  __syncthreads();
  const bool last = threadIdx.x == 0 && atomicAdd(&call.arrivals[blockIdx.x], 1u) + 1 == splits;
  if (!__syncthreads_or(last)) return;
  __threadfence();
  finish(call, part, block * kBlock, sums, splits);
  if (threadIdx.x == 0) call.arrivals[blockIdx.x] = 0;
}

struct Grid {
  int blocks, splits, passes;
};

// As many passes a CTA as still leave every processor two CTAs: fewer partial sums, but never an idle processor.
Grid grid_of(int in_features, int out_features, int passes) {
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const int deep = (in_features + kPass - 1) / kPass, wide = out_features / kBlock;
  if (passes == 0) {
    passes = kMaxPasses;
    while (passes > 1 && wide * ((deep + passes - 1) / passes) < 2 * processors) passes /= 2;
  }
  if (passes > deep) passes = deep;  // more would only overflow
  return Grid{wide, (deep + passes - 1) / passes, passes};
}

template <int K, Codebook BOOK, int GROUPS>
int launch(const Launch& call, Grid grid, cudaStream_t stream) {
  constexpr int bytes = 8 * GROUPS * kRowWords * static_cast<int>(sizeof(uint32_t));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid.blocks, grid.splits), config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = bytes, config.stream = stream;
  return cudaLaunchKernelEx(&config, dense_kernel<K, BOOK, GROUPS>, call) == cudaSuccess ? CARVE_OK : CARVE_CUDA_RUNTIME;
}

template <int K, Codebook BOOK>
int launch_rows(const Launch& call, Grid grid, cudaStream_t stream) {
  if (call.rows <= 8) return launch<K, BOOK, 1>(call, grid, stream);
#ifndef CARVE_ONE_INSTANTIATION
  if (call.rows <= 16) return launch<K, BOOK, 2>(call, grid, stream);
  return launch<K, BOOK, 4>(call, grid, stream);
#else
  return CARVE_DECLINE_ROWS_ABOVE;
#endif
}

template <Codebook BOOK>
int launch_bits(int bits, const Launch& call, Grid grid, cudaStream_t stream) {
  switch (bits) {
    case 6: return launch_rows<6, BOOK>(call, grid, stream);
#ifndef CARVE_ONE_INSTANTIATION
    case 3: return launch_rows<3, BOOK>(call, grid, stream);
    case 4: return launch_rows<4, BOOK>(call, grid, stream);
#ifndef CARVE_TUNED_ONLY
    case 2: return launch_rows<2, BOOK>(call, grid, stream);
    case 5: return launch_rows<5, BOOK>(call, grid, stream);
    case 7: return launch_rows<7, BOOK>(call, grid, stream);
    case 8: return launch_rows<8, BOOK>(call, grid, stream);
#endif
#endif
    default: return CARVE_DECLINE_BITS;
  }
}

int launch_book(int codebook, int bits, const Launch& call, Grid grid, cudaStream_t stream) {
  switch (codebook) {
    case CARVE_CODEBOOK_MCG: return launch_bits<Codebook::mcg>(bits, call, grid, stream);
#ifndef CARVE_ONE_INSTANTIATION
    case CARVE_CODEBOOK_DEFAULT: return launch_bits<Codebook::standard>(bits, call, grid, stream);
    case CARVE_CODEBOOK_MUL1: return launch_bits<Codebook::mul1>(bits, call, grid, stream);
#endif
    default: return CARVE_DECLINE_CODEBOOK;
  }
}

int64_t control_bytes(int out_features) { return (static_cast<int64_t>(out_features) / kBlock * 4 + 255) / 256 * 256; }

bool aligned(const void* address, uintptr_t to) { return address != nullptr && reinterpret_cast<uintptr_t>(address) % to == 0; }

int check(const carve_dense_call* call, int& out_features) {
  if (call->abi_version != CARVE_DENSE_ABI_VERSION) return CARVE_CUDA_BAD_CALL;
  if (call->rows < 1) return CARVE_DECLINE_ROWS_BELOW;
  if (call->rows > CARVE_CUDA_MAX_ROWS) return CARVE_DECLINE_ROWS_ABOVE;
  if (call->parts < 1 || call->parts > CARVE_DENSE_PARTS || call->passes < 0) return CARVE_CUDA_BAD_CALL;
  if (call->in_features < kBlock || call->in_features % kBlock) return CARVE_DECLINE_SHAPE;
  if (call->x_type < 0 || call->x_type > 2 || call->out_type < 0 || call->out_type > 2) return CARVE_CUDA_BAD_CALL;
  if (!aligned(call->x, 16) || !aligned(call->scratch, 16)) return CARVE_CUDA_BAD_CALL;
  out_features = 0;
  for (int i = 0; i < call->parts; ++i) {
    const carve_dense_part& part = call->part[i];
    if (part.out_features < kBlock || part.out_features % kBlock) return CARVE_DECLINE_SHAPE;
    if (!aligned(part.trellis, 16) || !aligned(part.suh, 8) || !aligned(part.svh, 8) || !aligned(part.out, 16))
      return CARVE_CUDA_BAD_CALL;
    out_features += part.out_features;
  }
  return call->scratch_bytes < carve_dense_scratch(call->rows, call->in_features, out_features) ? CARVE_DECLINE_NOT_READY : CARVE_OK;
}

}  // namespace
}  // namespace carve

extern "C" __attribute__((visibility("default"))) int64_t carve_dense_scratch(int32_t rows, int32_t in_features,
                                                                              int32_t out_features) {
  const int64_t splits = (in_features + carve::kPass - 1) / carve::kPass;  // of one pass each, the most there can be
  return carve::control_bytes(out_features) + splits * rows * out_features * static_cast<int64_t>(sizeof(float));
}

extern "C" __attribute__((visibility("default"))) int carve_dense_forward(const carve_dense_call* call) {
  using namespace carve;
  int out_features = 0;
  if (const int refused = check(call, out_features)) return refused;
  const Grid grid = grid_of(call->in_features, out_features, call->passes);
  Launch given{};
  for (int i = 0; i < call->parts; ++i) given.part[i] = call->part[i];
  given.x = call->x;
  given.arrivals = static_cast<uint32_t*>(call->scratch);
  given.sums = reinterpret_cast<float*>(static_cast<uint8_t*>(call->scratch) + control_bytes(out_features));
  given.counters = reinterpret_cast<unsigned long long*>(call->counters);
  given.rows = call->rows, given.in_features = call->in_features, given.passes = grid.passes;
  given.x_type = call->x_type, given.out_type = call->out_type;
  return launch_book(call->codebook, call->bits, given, grid, static_cast<cudaStream_t>(call->stream));
}

extern "C" __attribute__((visibility("default"))) const char* carve_dense_describe(void) {
  return "{\"name\": \"dense\", \"rows\": 32, \"bits\": [2, 8], \"parts\": 8, \"inputs_a_pass\": 256}";
}
