// A machine that runs CUDA kernels on one thread of the host, for parity and schedules where there is no GPU.
//
// Every CUDA thread is a fiber. A warp's fibers meet where its instructions need all lanes; blocks and clusters meet at
// their barriers; everything asynchronous waits in a queue and happens late, early or in between, as the seed says, so
// that a kernel which forgets to wait reads poison. Memory starts as NaN. What the machine does not have: timing,
// reordered plain loads and stores, and races between two instructions of different threads.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace machine {

constexpr size_t stack_bytes = 64 * 1024;
constexpr int rank_bits = 18;  // shared addresses: rank in the cluster, offset
constexpr uint32_t rank_unit = 1u << rank_bits;

struct Block;

struct Warp {
  Block* block = nullptr;
  int lanes = 32, arrived = 0, operation = 0;
  uint64_t generation = 0;
  uint32_t words[2][32][8];  // what the lanes brought to the meeting, in turns
};

struct Copy {
  uint8_t* to;
  const uint8_t* from;
  int bytes;
};

struct Fiber {
  void* stack_pointer = nullptr;
  uint8_t* stack = nullptr;
  Warp* warp = nullptr;
  int thread = 0, lane = 0;
  bool done = false;
  std::vector<std::vector<Copy>> groups;  // committed groups of asynchronous copies, and the open one
  std::vector<Copy> open;
};

struct Cluster {
  std::vector<Block*> blocks;
  int arrived = 0;
  uint64_t generation = 0;
};

struct Block {
  Cluster* cluster = nullptr;
  unsigned number = 0, rank = 0;
  int threads = 0;
  struct {
    int arrived = 0;
    uint64_t generation = 0;
  } barriers[16];
  int any = 0, any_before = 0;  // __syncthreads_or
  uint8_t* memory = nullptr;
  size_t memory_bytes = 0;
  std::vector<Warp> warps;
  std::vector<Fiber> fibers;
};

struct Barrier {  // as it lies in shared memory
  int32_t bytes;  // announced and not come
  uint8_t arrivals, pending;
  uint16_t phase;
};

extern "C" void carve_machine_switch(void** save, void* load);
asm(".text\n.local carve_machine_switch\ncarve_machine_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");

struct Pending {  // asynchronous work that may happen any time
  std::function<void()> work;
  uint32_t barrier;  // that counts it
  bool late;         // not before nobody can go on without; all that one phase of a barrier counts, or nothing
};

struct Machine {
  Fiber* current = nullptr;
  void* scheduler = nullptr;
  std::function<void()> body;
  unsigned grid = 1, columns = 1, threads = 1;  // of the grid: all blocks, and those of a row
  uint32_t seed = 1;
  std::mt19937 random{1};
  std::vector<Pending> pending;
  uint64_t events = 0;                         // whatever may let somebody go on
  std::vector<uint8_t*> stacks;
  std::string failure;  // of the launch under way or the last one

  Block& block() { return *current->warp->block; }

  void later(std::function<void()> work, uint32_t barrier, uint32_t phase) {
    const uint32_t drawn = (barrier / 8 * 2654435761u ^ (phase + 1) * 40503u ^ seed * 2246822519u) * 3266489917u >> 29;
    pending.push_back({std::move(work), barrier, drawn < 2});
  }
};

inline Machine& the() {
  static Machine machine;
  return machine;
}

// Ends the launch; the runtime reports the words. A fiber that faults never goes on.
inline void fault(const char* what) {
  Machine& machine = the();
  char words[200];
  if (machine.current)
    snprintf(words, sizeof words, "%s (block %u, thread %d)", what, machine.block().number, machine.current->thread);
  else
    snprintf(words, sizeof words, "%s", what);
  if (machine.failure.empty()) machine.failure = words;
  while (machine.current) carve_machine_switch(&machine.current->stack_pointer, machine.scheduler);
}

inline void check(bool holds, const char* what) {
  if (!holds) fault(what);
}

// Lets the others run.
inline void yield() {
  Fiber* self = the().current;
  carve_machine_switch(&self->stack_pointer, the().scheduler);
}

template <typename CONDITION>
void wait_until(CONDITION condition) {
  while (!condition()) yield();
}

inline void fiber_main() {
  Machine& machine = the();
  machine.body();
  machine.current->done = true;
  machine.events++;
  yield();
  abort();
}

// All lanes of the warp meet; every lane sees what each brought. `operation` must be the same for all.
inline const uint32_t (&meet(int operation, const uint32_t* words, int count))[32][8] {
  Fiber& self = *the().current;
  Warp& warp = *self.warp;
  const uint64_t generation = warp.generation;
  uint32_t(&slot)[32][8] = warp.words[generation & 1];
  if (warp.arrived == 0) warp.operation = operation;
  check(warp.operation == operation, "the lanes of a warp meet at different instructions");
  for (int i = 0; i < count; i++) slot[self.lane][i] = words[i];
  if (++warp.arrived == warp.lanes) {
    warp.arrived = 0;
    warp.generation++;
    the().events++;
  } else {
    wait_until([&] { return warp.generation != generation; });
  }
  return slot;
}

inline void sync(int number, int threads, int vote = 0) {
  Block& block = the().block();
  auto& barrier = block.barriers[number];
  const uint64_t generation = barrier.generation;
  block.any |= vote;
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    barrier.generation++;
    if (number == 0) block.any_before = block.any, block.any = 0;
    the().events++;
  } else {
    wait_until([&] { return barrier.generation != generation; });
  }
}

inline void sync_block(int vote = 0) { sync(0, the().block().threads, vote); }

inline uint8_t* shared_at(uint32_t address, int bytes) {
  Cluster& cluster = *the().block().cluster;
  const uint32_t rank = address >> rank_bits, offset = address & (rank_unit - 1);
  check(rank < cluster.blocks.size() && offset + bytes <= cluster.blocks[rank]->memory_bytes, "shared address out of range");
  check(address % bytes == 0 || bytes > 16, "shared address not aligned");
  return cluster.blocks[rank]->memory + offset;
}

inline void settle(Barrier& barrier) {
  if (barrier.pending == 0 && barrier.bytes == 0) barrier.pending = barrier.arrivals, barrier.phase++, the().events++;
}

// Runs one cluster of blocks after the other, or all of them at once where they wait for each other.
inline void run_blocks(std::vector<std::unique_ptr<Block>>& blocks) {
  Machine& machine = the();
  std::vector<Warp*> order;
  size_t fibers = 0, stack = 0;
  for (auto& block : blocks) {
    for (Warp& warp : block->warps) order.push_back(&warp);
    for (Fiber& fiber : block->fibers) {
      if (stack == machine.stacks.size()) {
        void* memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) return fault("no memory for stacks");
        machine.stacks.push_back(static_cast<uint8_t*>(memory));
      }
      fiber.stack = machine.stacks[stack++];
      void** top = reinterpret_cast<void**>(fiber.stack + stack_bytes) - 2;
      *top = reinterpret_cast<void*>(fiber_main);
      fiber.stack_pointer = top - 6;
      fibers++;
    }
  }
  int idle = 0;
  while (fibers > 0) {
    const uint64_t before = machine.events;
    std::shuffle(order.begin(), order.end(), machine.random);
    for (Warp* warp : order) {
      Fiber* lanes = &warp->block->fibers[(warp - warp->block->warps.data()) * 32];
      uint64_t seen;
      do {
        seen = warp->generation;
        for (int lane = 0; lane < warp->lanes; lane++) {
          if (lanes[lane].done) continue;
          machine.current = &lanes[lane];
          carve_machine_switch(&machine.scheduler, lanes[lane].stack_pointer);
          if (!machine.failure.empty()) {
            machine.current = nullptr;
            return;
          }
          if (lanes[lane].done) fibers--;
        }
      } while (warp->generation != seen);
    }
    machine.current = nullptr;
    // Asynchronous work: some of it now, in any order; what is late only where nobody can go on and nothing
    // else is left, for one barrier.
    const bool stuck = machine.events == before;
    const bool only_late = std::all_of(machine.pending.begin(), machine.pending.end(), [](const Pending& one) { return one.late; });
    const uint32_t chosen = stuck && only_late && !machine.pending.empty() ? machine.pending[machine.random() % machine.pending.size()].barrier : 0;
    std::vector<Pending> rest, now;
    for (auto& one : machine.pending) {
      const bool happens = one.late ? stuck && only_late && one.barrier == chosen : stuck || machine.random() % 4 == 0;
      (happens ? now : rest).push_back(std::move(one));
    }
    machine.pending = std::move(rest);
    std::shuffle(now.begin(), now.end(), machine.random);
    for (auto& one : now) one.work(), machine.events++;
    idle = machine.events == before ? idle + 1 : 0;
    if (idle > 2000) return fault("nobody can go on: the schedule has a deadlock");
  }
  check(machine.pending.empty(), "a block ended with asynchronous work under way");
}

// Whether it ended well; else the words are in `failure`.
inline bool launch(std::function<void()> body, unsigned grid, unsigned threads, size_t shared, unsigned cluster_size) {
  Machine& machine = the();
  const char* seed = getenv("CARVE_EMULATED_SEED");
  machine.seed = seed ? atoi(seed) : 1;
  machine.random.seed(machine.seed);
  machine.body = std::move(body), machine.grid = grid, machine.threads = threads;
  machine.failure.clear(), machine.pending.clear();
  check(grid % cluster_size == 0, "the grid is no whole number of clusters");
  check(threads % 32 == 0, "threads are no whole number of warps");
  // Clusters do not wait for each other: one at a time, the last first. Plain blocks may: all at once.
  std::vector<std::vector<unsigned>> rounds;
  if (cluster_size > 1) {
    for (unsigned first = 0; first < grid; first += cluster_size) {
      rounds.emplace_back();
      for (unsigned i = 0; i < cluster_size; i++) rounds.back().push_back(first + i);
    }
    std::shuffle(rounds.begin(), rounds.end(), machine.random);
  } else {
    rounds.emplace_back();
    for (unsigned i = 0; i < grid; i++) rounds.back().push_back(i);
  }
  for (const auto& round : rounds) {
    std::vector<std::unique_ptr<Block>> blocks;
    std::vector<std::unique_ptr<Cluster>> clusters;
    std::vector<std::vector<uint8_t>> memory;
    for (unsigned number : round) {
      auto block = std::make_unique<Block>();
      if (number % cluster_size == 0) clusters.push_back(std::make_unique<Cluster>());
      clusters.back()->blocks.push_back(block.get());
      block->cluster = clusters.back().get(), block->number = number, block->rank = number % cluster_size, block->threads = threads;
      memory.emplace_back(shared + 128, uint8_t(0xff));
      block->memory = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(memory.back().data()) + 127) / 128 * 128);
      block->memory_bytes = shared;
      block->warps.resize(threads / 32);
      block->fibers.resize(threads);
      for (unsigned i = 0; i < threads; i++) {
        block->fibers[i].thread = i, block->fibers[i].lane = i % 32, block->fibers[i].warp = &block->warps[i / 32];
        block->warps[i / 32].block = block.get();
      }
      blocks.push_back(std::move(block));
    }
    if (machine.failure.empty()) run_blocks(blocks);
  }
  return machine.failure.empty();
}

}  // namespace machine
