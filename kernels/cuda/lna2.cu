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
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>

#include "decode.cuh"
#include "down.cuh"
#include "gate_up.cuh"
#include "launch.cuh"

#if defined(CARVE_PAIRED)
#define CARVE_NAME "lna2-paired"
#else
#define CARVE_NAME "lna2"
#endif
#if defined(CARVE_CLUSTER)
#define CARVE_DESIGN "-cluster"
#else
#define CARVE_DESIGN ""
#endif
#if defined(CARVE_WATERMARK)
#define CARVE_BUILD "-watermark"
#elif defined(CARVE_NULL_DECODE)
#define CARVE_BUILD "-null-decode"
#else
#define CARVE_BUILD ""
#endif

namespace carve {

template <int K, Codebook BOOK, int DEPTH, int LEAST, int MOST, bool FEW>
__device__ __forceinline__ void work(const Problem& problem, Shared& shared, int ticket, uint32_t ring, uint8_t* fragments, float* sums) {
  if (ticket < problem.chunks)
    gate_up<K, BOOK, DEPTH, LEAST, MOST>(problem, shared, ticket, ring, fragments);
  else
    down<K, BOOK, DEPTH, LEAST, MOST, FEW>(problem, shared, ticket - problem.chunks, ring, fragments, sums);
}

// BITS: of all three matrices; 0: any, told by the problem. MOST: groups of eight rows that an expert may have; FEW: few_rows at
// most, where a launch is a chain of short steps and a block has a processor's registers.
template <int BITS, Codebook BOOK, int MOST, bool FEW>
__global__ void __launch_bounds__(threads, BITS && !FEW ? blocks_per_sm : 1) routed_experts(const __grid_constant__ Problem problem) {
  CARVE_SHARED(memory);
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  float* sums = reinterpret_cast<float*>(memory + shared_bytes);
  const uint32_t ring = shared_address(memory + shared_bytes + sums_bytes(MOST)) + threadIdx.x / 32 * ring_bytes(BITS);
  uint8_t* fragments = memory + shared_bytes + sums_bytes(MOST) + warps * ring_bytes(BITS);
  MARK(0);
#ifdef CARVE_OVERLAP
  const bool never = preload_tables<threads>(problem);
  wait_for_launches_before();
#endif
  const SlotIds<threads> chosen(problem.ids, problem.rows, problem.topk);
  unsigned long long number = 0;
  if (threadIdx.x == 0) number = atomicAdd(problem.ticket, 1ull);
#ifndef CARVE_OVERLAP
  const bool never = preload_tables<threads>(problem);
#endif
  if (MOST == 1 && problem.rows * problem.topk <= 32)
    plan_few_routes(shared.routes, chosen.id[0], problem.rows, problem.topk, problem.by_topk, problem.experts);
  else
    plan_routes<threads>(shared.routes, *reinterpret_cast<RoutesWork*>(fragments), chosen, problem.rows, problem.topk, problem.experts);
  if (threadIdx.x == 0) {
    const unsigned long long tickets = 2ull * problem.chunks + gridDim.x;
    const unsigned long long launch = number >> 32 ? number / tickets : static_cast<uint32_t>(number) / static_cast<uint32_t>(tickets);
    shared.first_ticket = launch * tickets;
    shared.launch = (launch + 1) * max_configurations + problem.configuration;
    shared.turn = never;
    shared.ticket[0] = static_cast<int>(number - launch * tickets);
    if (blockIdx.x == 0) count_launch(problem.layer, problem.rows);
  }
  MARK(1);
  // A row without an expert on this rank has nobody to finish it.
  for (int row = blockIdx.x; row < problem.rows; row += gridDim.x)
    if (shared.routes.experts_of_row[row] == 0)
      for (int at = threadIdx.x * 4; at < problem.hidden; at += threads * 4)
        write_output(problem, int64_t(row) * problem.hidden + at, make_float4(0.0f, 0.0f, 0.0f, 0.0f));
  __syncthreads();
  for (int turn = 0;; turn++) {
    const int ticket = shared.ticket[turn & 1];
    if (ticket >= 2 * problem.chunks) break;
    if (ticket >= problem.chunks) let_next_launch_start();
    if constexpr (BITS > 0) {
      work<BITS, BOOK, depth_of(BITS), 1, MOST, FEW>(problem, shared, ticket, ring, fragments, sums);
    } else {
      const int matrix = ticket >= problem.chunks ? 2 : threadIdx.x / 32 / (warps / 2);
      switch (matrix == 0 ? problem.matrices[0].bits : matrix == 1 ? problem.matrices[1].bits : problem.matrices[2].bits) {
        case 1: work<1, BOOK, depth_of(0), 4, 4, false>(problem, shared, ticket, ring, fragments, sums); break;
        case 2: work<2, BOOK, depth_of(0), 4, 4, false>(problem, shared, ticket, ring, fragments, sums); break;
        case 3: work<3, BOOK, depth_of(0), 4, 4, false>(problem, shared, ticket, ring, fragments, sums); break;
        case 4: work<4, BOOK, depth_of(0), 4, 4, false>(problem, shared, ticket, ring, fragments, sums); break;
        case 5: work<5, BOOK, depth_of(0), 4, 4, false>(problem, shared, ticket, ring, fragments, sums); break;
        case 6: work<6, BOOK, depth_of(0), 4, 4, false>(problem, shared, ticket, ring, fragments, sums); break;
        case 7: work<7, BOOK, depth_of(0), 4, 4, false>(problem, shared, ticket, ring, fragments, sums); break;
        default: work<8, BOOK, depth_of(0), 4, 4, false>(problem, shared, ticket, ring, fragments, sums); break;
      }
    }
  }
}

// The host's side.

using Kernel = void (*)(Problem);

constexpr int max_waves = 4;

// What a launch looks like on a device: derived from its properties; blocks on a processor and waves are tuned.
struct Configuration {
  int bits;    // 0: the kernel for any
  int number;  // of its ticket counter: launches with different numbers of tickets must not share one
  int blocks, chunks, fragments, shared_bytes;
};

// A tuned value, or what the environment says for the desk's search.
int tuned(const char* name, int value, int most) {
  const char* text = getenv(name);
  if (text && atoi(text) > 0) value = atoi(text);
  return value < most ? value : most;
}

// Groups of eight rows that an expert of a call may have: the kernel is made for them.
int groups_of(int bits, int rows) { return bits == 0 || rows > 16 ? 4 : rows > 8 ? 2 : 1; }

Configuration configure(const carve_cuda_device& device, int bits, int rows) {
  const int fixed = shared_bytes + sums_bytes(groups_of(bits, rows)) + warps * ring_bytes(bits), least = fixed + min_fragments * fragment_bytes;
  int resident = bits && rows > few_rows ? tuned("CARVE_CUDA_BLOCKS", blocks_per_sm, blocks_per_sm) : 1;
  while (resident > 1 && device.shared_per_processor / resident - device.shared_reserved < least) resident--;
  const int waves = tuned("CARVE_CUDA_WAVES", rows > 16 ? 2 : 1, max_waves);
  int available = device.shared_per_processor / resident - device.shared_reserved;
  if (available > device.shared_per_block) available = device.shared_per_block;
  Configuration found = {};
  found.bits = bits;
  found.number = (resident - 1) * max_waves + waves + (bits ? 0 : max_configurations / 2);
  found.blocks = device.processors * resident;
  found.chunks = found.blocks * waves;
  found.fragments = available < least ? 0 : (available - fixed) / fragment_bytes;
  found.shared_bytes = fixed + found.fragments * fragment_bytes;
  return found;
}

template <int BITS, Codebook BOOK>
Kernel kernel_for(int rows) {
  const int groups = groups_of(BITS, rows);
  if (rows <= few_rows) return routed_experts<BITS, BOOK, 1, true>;
  if (groups == 1) return routed_experts<BITS, BOOK, 1, false>;
  return groups == 2 ? routed_experts<BITS, BOOK, 2, false> : routed_experts<BITS, BOOK, 4, false>;
}

template <Codebook BOOK>
Kernel kernel_for(int bits, int rows) {
  if (bits == 2) return kernel_for<2, BOOK>(rows);
  if (bits == 3) return kernel_for<3, BOOK>(rows);
#ifndef CARVE_TUNED_ONLY
  return routed_experts<0, BOOK, 4, false>;
#else
  return nullptr;
#endif
}

Kernel kernel_for(int bits, int codebook, int rows) {
#ifndef CARVE_TUNED_ONLY
  if (codebook == CARVE_CODEBOOK_DEFAULT) return kernel_for<Codebook::standard>(bits, rows);
  if (codebook == CARVE_CODEBOOK_MUL1) return kernel_for<Codebook::mul1>(bits, rows);
#endif
  return kernel_for<Codebook::mcg>(bits, rows);
}

bool is_bits(int bits) { return bits >= 1 && bits <= 8; }

Matrices matrices_of(const carve_cuda_experts& experts) { return {experts.trellis, experts.suh, experts.svh, experts.bits}; }

bool contradicts(const carve_cuda_moe_call& call) {
  if (call.abi_version != CARVE_CUDA_ABI_VERSION || call.layer < 0 || call.layer >= CARVE_MAX_LAYERS) return true;
  if (call.rows < 1 || call.topk < 1 || call.experts < 1) return true;
  if (call.x_type != CARVE_BFLOAT16 && call.x_type != CARVE_FLOAT16) return true;
  return call.out_type < CARVE_FLOAT32 || call.out_type > CARVE_FLOAT16;
}

bool misplaced(const carve_cuda_moe_call& call) {
  for (const carve_cuda_experts* each : {&call.gate, &call.up, &call.down})
    if (!each->trellis || !each->suh || !each->svh) return true;
  const auto off = [](const void* pointer, int alignment) { return !pointer || reinterpret_cast<uintptr_t>(pointer) % alignment; };
  return off(call.x, 8) || off(call.ids, 4) || off(call.weights, 4) || off(call.out, 16) || off(call.scratch, 128);
}

int declines(const carve_cuda_moe_call& call) {
  if (call.rows > CARVE_CUDA_MAX_ROWS) return CARVE_DECLINE_ROWS_ABOVE;
  if (call.hidden < 128 || call.hidden % 128 || call.hidden > int(max_hidden)) return CARVE_DECLINE_SHAPE;
  if (call.intermediate < 128 || call.intermediate % 128 || call.intermediate / 128 > min_fragments) return CARVE_DECLINE_SHAPE;
  if (call.topk > CARVE_CUDA_MAX_TOPK || call.experts > CARVE_CUDA_MAX_EXPERTS) return CARVE_DECLINE_SHAPE;
  if (!is_bits(call.gate.bits) || !is_bits(call.up.bits) || !is_bits(call.down.bits)) return CARVE_DECLINE_BITS;
  if (call.gate.codebook < 0 || call.gate.codebook > CARVE_CODEBOOK_MUL1) return CARVE_DECLINE_CODEBOOK;
  if (call.up.codebook != call.gate.codebook || call.down.codebook != call.gate.codebook) return CARVE_DECLINE_CODEBOOK;
  return CARVE_OK;
}

using Decoder = void (*)(DecodeCall);

template <Codebook BOOK>
Decoder decoder_for(int bits) {
  switch (bits) {
    case 2: return decode_quad<2, BOOK, paired>;
    case 3: return decode_quad<3, BOOK, paired>;
#ifndef CARVE_TUNED_ONLY
    case 1: return decode_quad<1, BOOK, paired>;
    case 4: return decode_quad<4, BOOK, paired>;
    case 5: return decode_quad<5, BOOK, paired>;
    case 6: return decode_quad<6, BOOK, paired>;
    case 7: return decode_quad<7, BOOK, paired>;
    case 8: return decode_quad<8, BOOK, paired>;
#endif
    default: return nullptr;
  }
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

int plan_of(const carve_cuda_moe_call& call, const carve_cuda_device& device, Configuration& configuration, Scratch& scratch) {
  if (contradicts(call)) return CARVE_CUDA_BAD_CALL;
  if (int status = declines(call)) return status;
  const bool same = call.gate.bits == call.up.bits && call.gate.bits == call.down.bits;
  configuration = configure(device, same && (call.gate.bits == 2 || call.gate.bits == 3) ? call.gate.bits : 0, call.rows);
  if (configuration.fragments < min_fragments) return CARVE_DECLINE_PROCESSOR;
  const uint64_t pairs = call.rows * (call.topk < call.experts ? call.topk : call.experts), chunks = configuration.chunks;
  const uint64_t slices = pairs * (call.intermediate / 128), blocks = pairs * (call.hidden / 128);
  if (slices + chunks > max_flags) return CARVE_DECLINE_SHAPE;
  if ((slices * (call.hidden / 64) + 1) * chunks > INT32_MAX || blocks * chunks > INT32_MAX) return CARVE_DECLINE_SHAPE;
  scratch = scratch_of(configuration.chunks, call.rows, call.hidden, call.intermediate, call.topk, call.experts);
  return CARVE_OK;
}

}  // namespace carve

using namespace carve;

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT uint64_t carve_cuda_moe_scratch(int32_t rows, int32_t hidden, int32_t intermediate, int32_t topk, int32_t experts) {
  carve_cuda_device device;
  if (cudaError_t error = current_device(device)) return failed(error), 0;
  return scratch_of(device.processors * blocks_per_sm * max_waves, rows, hidden, intermediate, topk, experts).bytes;
}

EXPORT int carve_cuda_moe_plan(const carve_cuda_moe_call* call, const carve_cuda_device* device, carve_cuda_plan* plan) {
  Configuration configuration;
  Scratch scratch;
  if (int status = plan_of(*call, *device, configuration, scratch)) return status;
  *plan = {configuration.blocks, configuration.chunks, configuration.fragments, configuration.shared_bytes, scratch.bytes};
  return CARVE_OK;
}

EXPORT int carve_cuda_moe_forward(const carve_cuda_moe_call* call) {
  carve_cuda_device device;
  if (cudaError_t error = current_device(device)) return failed(error);
  Configuration configuration;
  Scratch scratch;
  if (int status = plan_of(*call, device, configuration, scratch)) return status;
  if (misplaced(*call) || call->scratch_bytes < scratch.bytes) return CARVE_CUDA_BAD_CALL;
  uint8_t* base = static_cast<uint8_t*>(call->scratch);
  Problem problem = {};
  problem.x = call->x, problem.ids = call->ids, problem.weights = call->weights, problem.out = call->out;
  problem.matrices[0] = matrices_of(call->gate), problem.matrices[1] = matrices_of(call->up), problem.matrices[2] = matrices_of(call->down);
  problem.configuration = configuration.number;
  problem.ticket = reinterpret_cast<unsigned long long*>(base) + problem.configuration;
  problem.arrivals = reinterpret_cast<uint32_t*>(base + arrivals_at);
  problem.flags = reinterpret_cast<unsigned long long*>(base + flags_at);
  problem.partial = reinterpret_cast<float*>(base + data_at);
  problem.results = reinterpret_cast<float*>(base + scratch.results_at);
  problem.layer = call->layer, problem.rows = call->rows, problem.hidden = call->hidden, problem.intermediate = call->intermediate;
  problem.topk = call->topk, problem.experts = call->experts, problem.limit = call->limit;
  problem.chunks = configuration.chunks, problem.fragments = configuration.fragments;
  problem.rows_at_once = std::min<int>(CARVE_CUDA_MAX_ROWS, configuration.fragments / (call->intermediate / 128));
  problem.x_type = call->x_type, problem.out_type = call->out_type;
  problem.by_topk = divisor(call->topk), problem.by_chunks = divisor(configuration.chunks), problem.by_quads = divisor(call->hidden / 64);
  problem.by_slices = divisor(call->intermediate / 128), problem.by_blocks = divisor(call->hidden / 128);
  const Kernel kernel = kernel_for(configuration.bits, call->gate.codebook, call->rows);
  if (!kernel) return CARVE_DECLINE_CODEBOOK;
#ifdef CARVE_CLUSTER
  ClusterPlan clusters;
  if (cudaError_t error = plan_clusters(*call, device, clusters)) return failed(error);
  if (clusters.call.clusters > 0) {
    clusters.call.problem = problem;
    if (cudaError_t error = launch(clusters.kernel, clusters.call, clusters.call.clusters * cluster_size, cluster_threads, clusters.call.at.total, cluster_size, call->stream)) return failed(error);
    return CARVE_OK;
  }
#endif
  if (cudaError_t error = launch(kernel, problem, configuration.blocks, threads, configuration.shared_bytes, 1, call->stream)) return failed(error);
  return CARVE_OK;
}

EXPORT int carve_cuda_decode(const void* trellis, int32_t bits, int32_t codebook, int32_t as_pairs, void* out, void* stream) {
  if (as_pairs != paired || !trellis || !out) return CARVE_CUDA_BAD_CALL;
  Decoder decoder = codebook == CARVE_CODEBOOK_MCG ? decoder_for<Codebook::mcg>(bits) : nullptr;
#ifndef CARVE_TUNED_ONLY
  if (codebook == CARVE_CODEBOOK_DEFAULT) decoder = decoder_for<Codebook::standard>(bits);
  if (codebook == CARVE_CODEBOOK_MUL1) decoder = decoder_for<Codebook::mul1>(bits);
#endif
  if (!decoder) return CARVE_DECLINE_BITS;
  const DecodeCall call = {static_cast<const uint8_t*>(trellis), static_cast<uint32_t*>(out)};
  if (cudaError_t error = launch(decoder, call, 1, 32, 4 * 32 * bits, 1, stream)) return failed(error);
  return CARVE_OK;
}

EXPORT const carve_layer_counters* carve_cuda_counters(void) {
  void* address = nullptr;
  if (cudaError_t error = cudaGetSymbolAddress(&address, layer_counters)) return failed(error), nullptr;
  return static_cast<const carve_layer_counters*>(address);
}

EXPORT const char* carve_cuda_describe(void) {
  static thread_local char text[2048];
  carve_cuda_device device;
  if (cudaError_t error = current_device(device)) return failed(error), "";
  int used = snprintf(text, sizeof text, "{\"name\": \"%s\", \"processors\": %d, \"depth\": %d, \"control_bytes\": %d", CARVE_NAME CARVE_DESIGN CARVE_BUILD,
                      device.processors, CARVE_DEPTH, static_cast<int>(data_at));
  for (int bits : {2, 3, 0})
    for (int rows : {1, 4}) {
      const Configuration each = configure(device, bits, rows);
      used += snprintf(text + used, sizeof text - used, ", \"k%d-m%d\": {\"blocks\": %d, \"chunks\": %d, \"fragments\": %d, \"shared_bytes\": %d}",
                       bits, rows, each.blocks, each.chunks, each.fragments, each.shared_bytes);
    }
#ifdef CARVE_CLUSTER
  for (int bits : {2, 3})
    for (int rows : {1, 4, 16, 32}) {
      carve_cuda_moe_call served = {};
      served.rows = rows, served.hidden = 4096, served.intermediate = 256, served.topk = 6, served.experts = 256;
      served.gate.bits = served.up.bits = served.down.bits = bits, served.gate.codebook = CARVE_CODEBOOK_MCG;
      ClusterPlan plan;
      if (cudaError_t error = plan_clusters(served, device, plan)) return failed(error), "";
      used += snprintf(text + used, sizeof text - used, ", \"clusters-k%d-m%d\": [%d, %d, %d, %d, %d]", bits, rows, plan.call.clusters,
                       plan.call.at.item_rows, plan.call.at.gate_up_slots, plan.call.at.down_slots, plan.call.at.total);
    }
#endif
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
