// The functions of kernels/cuda/ptx.cuh on the machine.
#pragma once
#include "cuda.h"

namespace carve {

inline uint32_t shared_address(const void* pointer) {
  machine::Block& block = machine::the().block();
  const ptrdiff_t offset = static_cast<const uint8_t*>(pointer) - block.memory;
  machine::check(offset >= 0 && size_t(offset) < block.memory_bytes, "not an address in shared memory");
  return block.rank * machine::rank_unit + uint32_t(offset);
}

inline uint32_t pair_of_product(uint32_t value) { return (value & 0x8fff8fffu) ^ 0x3b603b60u; }

inline float half_of(uint32_t word, int which) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(word >> 16 * which)));
}

// m16n8k16: lane (g, t) has A (g | g+8, 2t,2t+1 | +8), B (2t,2t+1 | +8, g) and C (g | g+8, 2t,2t+1).
inline void multiply(float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  const uint32_t words[6] = {a0, a1, a2, a3, b0, b1};
  const auto& all = machine::meet(6, words, 6);
  const int lane = machine::the().current->lane, g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; i++) {
    const int below = i / 2, column = 2 * t + i % 2;
    double total = sum[i];
    for (int k = 0; k < 16; k++) {
      const int high = k / 8, pair = k % 8 / 2;
      total += double(half_of(all[g * 4 + pair][high * 2 + below], k % 2)) * half_of(all[column * 4 + pair][4 + high], k % 2);
    }
    sum[i] = static_cast<float>(total);
  }
}

inline uint32_t load_shared(uint32_t address) { return *reinterpret_cast<const uint32_t*>(machine::shared_at(address, 4)); }
inline uint2 load_shared_2(uint32_t address) { return *reinterpret_cast<const uint2*>(machine::shared_at(address, 8)); }
inline uint4 load_shared_4(uint32_t address) { return *reinterpret_cast<const uint4*>(machine::shared_at(address, 16)); }

template <int NUMBER, int THREADS>
void sync_some() {
  machine::sync(NUMBER, THREADS);
}

inline void copy_async(uint32_t to, const void* from, int bytes) {
  machine::check(reinterpret_cast<uintptr_t>(from) % bytes == 0, "asynchronous copy from an address that is not aligned");
  machine::the().current->open.push_back({machine::shared_at(to, bytes), static_cast<const uint8_t*>(from), bytes});
}
inline void copy_16(uint32_t to, const void* from) { copy_async(to, from, 16); }
inline void copy_8(uint32_t to, const void* from) { copy_async(to, from, 8); }
inline void copy_commit() {
  machine::Fiber& self = *machine::the().current;
  self.groups.push_back(std::move(self.open));
  self.open.clear();
}
template <int PENDING>
void copy_wait() {  // as late as can be
  auto& groups = machine::the().current->groups;
  while (groups.size() > PENDING) {
    for (const machine::Copy& one : groups.front()) memcpy(one.to, one.from, one.bytes);
    groups.erase(groups.begin());
  }
}

inline unsigned long long load_acquire(const unsigned long long* address) {
  machine::yield();
  return *address;
}
inline void store_release(unsigned long long* address, unsigned long long value) {
  *address = value;
  machine::the().events++;
}
inline uint32_t arrive(uint32_t* address) { return machine::the().events++, ++*address; }

inline void wait_for_launches_before() {}
inline void let_next_launch_start() {}

inline uint32_t rank_in_cluster() { return machine::the().block().rank; }

// Arrival and wait are one barrier here; what lies between them must not need the others.
inline void cluster_arrive() {
  machine::Cluster& cluster = *machine::the().block().cluster;
  const int all = int(cluster.blocks.size()) * machine::the().block().threads;
  if (++cluster.arrived % all == 0) cluster.generation++, machine::the().events++;
}
inline void cluster_wait() {  // the first barrier of the cluster
  machine::Cluster& cluster = *machine::the().block().cluster;
  machine::wait_until([&] { return cluster.generation > 0; });
}

inline uint32_t address_at(uint32_t address, uint32_t rank) { return rank * machine::rank_unit + (address & (machine::rank_unit - 1)); }

inline machine::Barrier& barrier_at(uint32_t barrier) { return *reinterpret_cast<machine::Barrier*>(machine::shared_at(barrier, 8)); }

inline void barrier_init(uint32_t barrier, int arrivals) { barrier_at(barrier) = {0, uint8_t(arrivals), uint8_t(arrivals), 0}; }
inline void barrier_init_done() {}
inline void barrier_expect(uint32_t barrier, uint32_t bytes) {
  machine::Barrier& at = barrier_at(barrier);
  machine::check(at.pending > 0, "more arrive at a barrier than it counts");
  at.pending--;
  at.bytes += bytes;
  machine::settle(at);
}
inline void barrier_arrive(uint32_t barrier) { barrier_expect(barrier, 0); }
inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  machine::Barrier* at = &barrier_at(barrier);
  machine::wait_until([=] { return (at->phase & 1) != parity; });
}

// Bytes that come for a barrier. They may come before they are announced, but not for a phase that is over.
inline void come(machine::Barrier* at, int bytes) {
  at->bytes -= bytes;
  machine::settle(*at);
}

template <typename T>
void store_later(uint32_t to, T value, uint32_t barrier) {
  T* target = reinterpret_cast<T*>(machine::shared_at(to, sizeof(T)));
  machine::Barrier* at = &barrier_at(barrier);
  machine::check(to >> machine::rank_bits == barrier >> machine::rank_bits, "data and barrier lie in different blocks");
  machine::the().later([=] { *target = value, come(at, sizeof(T)); }, barrier, at->phase);
}
inline void store_remote_2(uint32_t to, uint2 value, uint32_t barrier) { store_later(to, value, barrier); }
inline void store_remote_4(uint32_t to, const float (&value)[4], uint32_t barrier) {
  store_later(to, float4{value[0], value[1], value[2], value[3]}, barrier);
}
inline void copy_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  machine::check(bytes > 0 && bytes % 16 == 0 && to % 16 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0, "bulk copy not aligned");
  machine::shared_at(to + bytes - 1, 1);
  uint8_t* target = machine::shared_at(to, 16);
  machine::Barrier* at = &barrier_at(barrier);
  machine::the().later([=] { memcpy(target, from, bytes), come(at, bytes); }, barrier, at->phase);
}

}  // namespace carve
