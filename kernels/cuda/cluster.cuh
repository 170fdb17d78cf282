// The routed experts without a word through global memory between gate, up and down: a cluster of blocks takes an expert
// from end to end (sm_90 and later).
//
// An item is an expert and up to eight of its rows; cluster c takes items c, c + clusters, ... Of gate and up a block has
// its share of the inputs, of down its share of the columns, for every item the same. The copy engine brings whole shares
// into shared memory, items ahead. Blocks hand on their partial sums, and the activations made of them, by stores into
// each other's shared memory that barriers there count. No cluster waits for another; whoever ends last adds up.
//
//   16 warps decode    ████ gate, up of item j ████ push sums   ██ down of item j - 1 ██   ████ gate, up of item j + 1 …
//   one activates      ▓ activations of item j - 1, pushed      ▓ of item j, as soon as its sums are there
//   four shape         ░ x·suh, H, half: inputs of item j + 1   ▒ H, svh: results of item j - 1
//   one fetches        ▄▄▄▄ bytes and scales of the next items, wherever there is room
//
// No barrier of the block lies between them: each waits for what it needs, and a warp that decodes for its own needs only.
// What down waits for is made while gate and up of the next item are decoded: only a cluster's last item waits for it.
#pragma once
#include "cluster_fetch.cuh"

namespace carve {

// Four values of each of four lanes, four lanes apart, transposed: value i of the j-th becomes value j of the i-th.
__device__ __forceinline__ void transpose_over_groups(float (&value)[4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int bit = 1; bit < 4; bit *= 2) {
    const bool upper = lane / 4 & bit;
#pragma unroll
    for (int low = 0; low < 4; low++) {
      if (low & bit) continue;
      const float given = upper ? value[low] : value[low + bit], taken = __shfl_xor_sync(0xffffffffu, given, 4 * bit);
      (upper ? value[low] : value[low + bit]) = taken;
    }
  }
}

// What the warps of a block do.
template <int K, Codebook BOOK>
struct ClusterWork : ClusterBlock {
  using ClusterBlock::ClusterBlock;

  // x · suh, rotated, as B fragments [block of 128 inputs, gate | up, row]; by the warps that shape.
  __device__ __forceinline__ void transform(int item) const {
    const uint32_t rows = shared.items[item].rows;
    const int count = __popc(rows), tasks = count * 2 * (at.inputs / 128);
    const uint16_t* scale = scales(item);
    for (int task = warp - first_shaper; task < tasks; task += shapers) {
      const int row = nth_row(rows, task % count), matrix = task / count % 2, block = task / count / 2, place = block * 128 + lane * 4;
      const float4 a = floats(*reinterpret_cast<const uint2*>(memory + at.x_at + (row * at.inputs + place) * 2));
      const float4 b = floats(*reinterpret_cast<const uint2*>(scale + matrix * at.inputs + place));
      float value[4] = {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
      hadamard128(value);
      write_fragments<BOOK>(memory + at.fragments_at + (item & 1) * at.fragments_bytes + task * fragment_bytes, value);
    }
  }

  // Partial sums of 256 gate or up columns at a time, two columns of tiles a warp; row and slice have an owner.
  __device__ __forceinline__ void gate_up(int item) const {
    const int slot = item % at.gate_up_slots, count = __popc(shared.items[item].rows), matrix = warp / 8;
    const int group = lane / 4, t = lane % 4, half = at.inputs / 128;  // quads
    const uint32_t fragment =
        base + at.fragments_at + (item & 1) * at.fragments_bytes + (matrix * count + min(group, count - 1)) * fragment_bytes + t * 16;
    const uint32_t tiles_at = base + at.gate_up_at + slot * at.gate_up_bytes + (matrix * (at.inputs / 16) + t) * at.gate_row;
    for (int column = warp % 8 * 2; column < slices * 8; column += 16) {
      float sums[2][1][4] = {};
#pragma unroll 1
      for (int part = 0; part < 2; part++) {
        barrier_wait(barrier(shared.gate_up[slot][part]), item / at.gate_up_slots & 1);
#pragma unroll 2
        for (int quad = part * half; quad < (part + 1) * half; quad++) {
          const uint32_t tile = tiles_at + quad * 4 * at.gate_row + column * 32 * K;
          const LaneWords<K> words[2] = {words_of_tile<K>(tile, group), words_of_tile<K>(tile + 32 * K, group)};
          const uint32_t operand[1] = {fragment + (quad >> 1) * 2 * count * fragment_bytes + (quad & 1) * 256};
          Quad<K, 2, 1, BOOK, paired>::run(sums, words, operand);
        }
      }
      // Of a row, lane group g has column g of each eight of the 32; then lane group 4 q + i has columns 4 q .. 4 q + 3 of
      // the i-th eight, so that an owner gets four sums a store.
      const int slice = column / 8, place = matrix * 128 + column % 8 * 16 + group % 4 * 8 + group / 4 * 4;
#pragma unroll
      for (int odd = 0; odd < 2; odd++) {
        float four[4] = {sums[0][0][odd], sums[0][0][2 + odd], sums[1][0][odd], sums[1][0][2 + odd]};
        transpose_over_groups(four);
        const int row = 2 * t + odd, task = row * slices + slice;
        if (row >= count) continue;
        const uint32_t owner = task % cluster_size, done = address_at(barrier(shared.partial[item & 1]), owner);
        const uint32_t local = base + at.partial_at + (item & 1) * at.partial_bytes + (task / cluster_size * cluster_size + rank) * 1024;
        store_remote_4(address_at(local, owner) + place * 4, four, done);
      }
    }
  }

  // What comes to this block for an item: partial sums of the rows and slices that it owns, and all activations. Where it
  // owns none, nothing is announced: its partial sums have a phase for each item that needs them, and no other.
  __device__ __forceinline__ void expect(int item) const {
    const int tasks = __popc(shared.items[item].rows) * slices;
    const int mine = tasks > rank ? (tasks - rank + cluster_size - 1) / cluster_size : 0;
    if (mine) barrier_expect(barrier(shared.partial[item & 1]), mine * cluster_size * 1024);
    barrier_expect(barrier(shared.activation[item & 1]), tasks * 512);
  }

  // The activations that this block owns into every block's fragments [slice, row]; by one warp. Bit s of phases: parity of
  // the next partial sums in slot s.
  __device__ __forceinline__ void activate(int item, uint32_t& phases) const {
    const int count = __popc(shared.items[item].rows), tasks = count * slices;
    if (rank >= tasks) return;
    barrier_wait(barrier(shared.partial[item & 1]), phases >> (item & 1) & 1);
    phases ^= 1u << (item & 1);
    barrier_wait(barrier(shared.scales[item % at.scale_slots]), item / at.scale_slots & 1);
    for (int number = 0; number * cluster_size + rank < tasks; number++) {
      const int task = number * cluster_size + rank, row = task / slices, slice = task % slices;
      const float4* from = reinterpret_cast<const float4*>(memory + at.partial_at + (item & 1) * at.partial_bytes) + number * cluster_size * 64 + lane;
      const uint16_t* scale = scales(item) + 2 * at.inputs + slice * 128 + lane * 4;
      float gate[4] = {}, up[4] = {};
#pragma unroll
      for (int source = 0; source < cluster_size; source++) {
        const float4 g = from[source * 64], u = from[source * 64 + 32];
        gate[0] += g.x, gate[1] += g.y, gate[2] += g.z, gate[3] += g.w;
        up[0] += u.x, up[1] += u.y, up[2] += u.z, up[3] += u.w;
      }
      rotate_and_scale(gate, *reinterpret_cast<const uint2*>(scale));
      rotate_and_scale(up, *reinterpret_cast<const uint2*>(scale + problem.intermediate));
      float value[4];
      activation_of(problem.limit, gate, up, *reinterpret_cast<const uint2*>(scale + 2 * problem.intermediate), value);
      const uint2 low = make_uint2(operand<BOOK, paired>(value[0]), operand<BOOK, paired>(value[1]));
      const uint2 high = make_uint2(operand<BOOK, paired>(value[2]), operand<BOOK, paired>(value[3]));
      const uint32_t local = base + at.activations_at + (item & 1) * at.activation_bytes + (slice * count + row) * fragment_bytes + place_in_fragment();
      const uint32_t done = barrier(shared.activation[item & 1]);
#pragma unroll 4
      for (int to = 0; to < cluster_size; to++) {
        const uint32_t target = address_at(local, to), counted = address_at(done, to);
        store_remote_2(target, low, counted);
        store_remote_2(target + 64, high, counted);
      }
    }
  }

  // The block's columns of down into sums [row, columns].
  __device__ __forceinline__ void down(int item) const {
    const int slot = item % at.down_slots, count = __popc(shared.items[item].rows), group = lane / 4, t = lane % 4;
    const int quads = problem.intermediate / 64;
    const uint32_t fragment = base + at.activations_at + (item & 1) * at.activation_bytes + min(group, count - 1) * fragment_bytes + t * 16;
    const uint32_t tiles_at = base + at.down_at + slot * at.down_bytes + t * at.down_row;
    float* sums_at = reinterpret_cast<float*>(memory + at.sums_at + (item & 1) * at.sums_bytes);
    barrier_wait(barrier(shared.down[slot]), item / at.down_slots & 1);
    barrier_wait(barrier(shared.activation[item & 1]), item >> 1 & 1);
    for (int column = warp; column < at.columns / 16; column += decoders) {
      float sums[1][1][4] = {};
#pragma unroll 2
      for (int quad = 0; quad < quads; quad++) {
        const LaneWords<K> words[1] = {words_of_tile<K>(tiles_at + quad * 4 * at.down_row + column * 32 * K, group)};
        const uint32_t operand[1] = {fragment + (quad >> 1) * count * fragment_bytes + (quad & 1) * 256};
        Quad<K, 1, 1, BOOK, paired>::run(sums, words, operand);
      }
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int row = 2 * t + (i & 1);
        if (row < count) sums_at[row * at.sums_stride + column * 16 + (i >> 1) * 8 + group] = sums[0][0][i];
      }
    }
  }

  // Rotates and scales the sums of down: one expert's part of the output, at the row's first slot that names it.
  __device__ __forceinline__ void finish(int item) const {
    const uint32_t rows = shared.items[item].rows;
    const int count = __popc(rows), blocks = at.columns / 128, tasks = count * blocks, expert = shared.items[item].expert;
    const uint16_t* svh = entry_of(problem.matrices[2].svh, expert) + rank * at.columns + lane * 4;
    int task = warp - first_shaper;
    uint2 scale = task < tasks ? halves_at(svh, task % blocks * 128) : make_uint2(0, 0);  // on its way while sums are waited for
    barrier_wait(barrier(shared.sums_ready[item & 1]), item >> 1 & 1);
    for (; task < tasks; task += shapers) {
      const int number = task / blocks, place = task % blocks * 128 + lane * 4, row = nth_row(rows, number);
      const int id = lane < problem.topk ? shared.ids[row * problem.topk + lane] : -1;
      const int slot = __ffs(__ballot_sync(0xffffffffu, id == expert)) - 1;
      const float4 sum =
          *reinterpret_cast<const float4*>(memory + at.sums_at + (item & 1) * at.sums_bytes + (number * at.sums_stride + place) * 4);
      float value[4] = {sum.x, sum.y, sum.z, sum.w};
      if (task >= shapers) scale = halves_at(svh, task % blocks * 128);
      rotate_and_scale(value, scale);
      __stcg(reinterpret_cast<float4*>(problem.results + int64_t(row * problem.topk + slot) * problem.hidden + rank * at.columns + place),
             make_float4(value[0], value[1], value[2], value[3]));
    }
  }

  // Inputs of an item, then results of the one two before it.
  __device__ __forceinline__ void shape_all() const {
    for (int item = 0; item < shared.count + 2; item++) {
      if (item < shared.count) {
        if (item > 1) barrier_wait(barrier(shared.fragments_read[item & 1]), (item - 2) >> 1 & 1);
        barrier_wait(barrier(shared.scales[item % at.scale_slots]), item / at.scale_slots & 1);
        transform(item);
        tell(shared.fragments_ready[item & 1]);
      }
      if (item > 1) {
        finish(item - 2);
        tell(shared.sums_read[item & 1]);
      }
    }
  }

  // Gate and up of an item, then down of the one before it.
  __device__ __forceinline__ void decode_all() const {
    for (int item = 0; item <= shared.count; item++) {
      if (item < shared.count) {
        if (threadIdx.x == 0) expect(item);
        barrier_wait(barrier(shared.fragments_ready[item & 1]), item >> 1 & 1);
        MARK(3);
        if (item == 0) cluster_wait();  // all blocks of the cluster have set up what others store into
        gate_up(item);
        tell(shared.gate_up_read[item % at.gate_up_slots]);
        tell(shared.fragments_read[item & 1]);
        MARK(4);
      }
      if (item > 0) {
        if (item > 2) barrier_wait(barrier(shared.sums_read[(item - 1) & 1]), (item - 3) >> 1 & 1);
        down(item - 1);
        tell(shared.down_read[(item - 1) % at.down_slots]);
        tell(shared.sums_ready[(item - 1) & 1]);
        MARK(8);
      }
    }
  }

  // Activations of the items; before, the first slot of every row with the same id, for the sum at the end.
  __device__ __forceinline__ void activate_all() const {
    for (int slot = lane; slot < problem.rows * problem.topk; slot += 32) {
      int first = slot / problem.topk * problem.topk;
      while (shared.ids[first] != shared.ids[slot]) first++;
      shared.first_slot[slot] = first % problem.topk;
    }
    if (shared.count > 0) cluster_wait();
    uint32_t phases = 0;
    for (int item = 0; item < shared.count; item++) activate(item, phases);
  }

  // The sum over the slots of every row, for the block's columns.
  __device__ __forceinline__ void combine_all() const {
    constexpr int flight = 8;
    const int quarter = at.columns / 4;
    for (int task = threadIdx.x; task < problem.rows * quarter; task += cluster_threads) {
      const int row = task / quarter, column = rank * at.columns + task % quarter * 4;
      float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      for (int first = 0; first < problem.topk; first += flight) {
        float4 value[flight];
        float weight[flight];
#pragma unroll
        for (int i = 0; i < flight; i++) {
          const int slot = row * problem.topk + first + i;
          weight[i] = 0.0f;
          value[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
          if (first + i >= problem.topk || shared.ids[slot] < 0) continue;
          weight[i] = __ldg(problem.weights + slot);
          value[i] = __ldcg(reinterpret_cast<const float4*>(
              problem.results + int64_t(row * problem.topk + shared.first_slot[slot]) * problem.hidden + column));
        }
#pragma unroll
        for (int i = 0; i < flight; i++) {
          sum.x = fmaf(weight[i], value[i].x, sum.x), sum.y = fmaf(weight[i], value[i].y, sum.y);
          sum.z = fmaf(weight[i], value[i].z, sum.z), sum.w = fmaf(weight[i], value[i].w, sum.w);
        }
      }
      write_output(problem, int64_t(row) * problem.hidden + column, sum);
    }
  }
};

template <int K, Codebook BOOK>
__global__ void __launch_bounds__(cluster_threads, 1) routed_experts_clustered(const __grid_constant__ ClusterProblem call) {
  CARVE_SHARED(memory);
  const ClusterWork<K, BOOK> block(call, memory);
  const Problem& problem = call.problem;
  ClusterShared& shared = block.shared;
  const int thread = threadIdx.x;
  MARK(0);
  const bool never = preload_tables<cluster_threads>(problem);
  if (thread < cluster_barriers) barrier_init(block.barrier(shared.gate_up[0][0]) + thread * 8, ClusterBarriers::arrivals_at(thread));
  barrier_init_done();
  wait_for_launches_before();
  const int id = thread < problem.rows * problem.topk ? problem.ids[thread] : never ? 0 : -1;
  for (int task = thread; task < problem.rows * block.at.inputs / 4; task += cluster_threads) {
    const int row = task / (block.at.inputs / 4), place = task % (block.at.inputs / 4) * 4;
    *reinterpret_cast<uint2*>(memory + block.at.x_at + (row * block.at.inputs + place) * 2) =
        x_at(problem, int64_t(row) * problem.hidden + block.rank * block.at.inputs + place);
  }
  plan_items(call, shared, *reinterpret_cast<PlanWork*>(memory + block.at.fragments_at), id);
  const int count = shared.count;
  if (thread == 0 && blockIdx.x == 0) count_launch(problem.layer, problem.rows);
  MARK(1);
  if (count > 0) {
    // One copy a warp at a time: a warp's copies start one after the other.
    if (block.warp < decoders && block.lane == 0) block.fetch_gate_up(0, block.warp, decoders);
    __syncwarp();
    cluster_arrive();
  }
  if (block.warp == activating_warp)
    block.activate_all();
  else if (count > 0 && block.warp == fetching_warp)
    block.fetch_all();
  else if (count > 0 && block.warp < decoders)
    block.decode_all();
  else if (count > 0)
    block.shape_all();
  let_next_launch_start();
  if (count == 0 && blockIdx.x >= cluster_size) return;
  MARK(10);
  __syncthreads();
  if (thread == 0) {
    shared.last = arrive(problem.arrivals + block.rank) == static_cast<uint32_t>(shared.participants);
    if (shared.last) problem.arrivals[block.rank] = 0;
  }
  __syncthreads();
  if (shared.last) block.combine_all();
  MARK(11);
}

}  // namespace carve
