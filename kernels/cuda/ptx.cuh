// Every instruction that CUDA C++ has no word for. Nothing else in these sources is inline assembly, so a host that
// brings the same functions (carve_kernels/desk/gpu/native/emulator) runs the kernels unchanged, without a GPU.
#pragma once
#include <stdint.h>

#ifndef CARVE_EMULATED

#define CARVE_SHARED(NAME) extern __shared__ __align__(128) uint8_t NAME[]

namespace carve {

// Addresses in shared memory are 32 bits, as the instructions want them.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Decoding and multiplying.

// (value & 0x8fff8fff) ^ 0x3b603b60: the codebook's pair of halves from its product.
__device__ __forceinline__ uint32_t pair_of_product(uint32_t value) {
  asm("lop3.b32 %0, %0, 0x8fff8fff, 0x3b603b60, 0x6a;" : "+r"(value));
  return value;
}

__device__ __forceinline__ void multiply(float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                         uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint32_t load_shared(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address));
  return value;
}

__device__ __forceinline__ uint2 load_shared_2(uint32_t address) {
  uint2 value;
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(address));
  return value;
}

__device__ __forceinline__ uint4 load_shared_4(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address));
  return value;
}

// A barrier of some warps of the block; 0 is that of all.
template <int NUMBER, int THREADS>
__device__ __forceinline__ void sync_some() {
  asm volatile("bar.sync %0, %1;" ::"n"(NUMBER), "n"(THREADS) : "memory");
}

// Asynchronous copies of a thread, in groups of its own.

__device__ __forceinline__ void copy_16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void copy_8(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;"); }

template <int PENDING>
__device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// What blocks tell each other through global memory.

__device__ __forceinline__ unsigned long long load_acquire(const unsigned long long* address) {
  unsigned long long value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
  return value;
}

__device__ __forceinline__ void store_release(unsigned long long* address, unsigned long long value) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
}

// Counts one more; whoever counts last sees what the others wrote before they counted.
__device__ __forceinline__ uint32_t arrive(uint32_t* address) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(address) : "memory");
  return before + 1;
}

// Launches that overlap (builds with CARVE_OVERLAP, sm_90 and later): this one may start while the one before it ends, and touches nothing that
// others write until here.
__device__ __forceinline__ void wait_for_launches_before() {
#if defined(CARVE_OVERLAP) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void let_next_launch_start() {
#if defined(CARVE_OVERLAP) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Clusters: blocks on neighbouring processors that reach each other's shared memory.

__device__ __forceinline__ uint32_t rank_in_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }

__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// The same place in the shared memory of another block of the cluster.
__device__ __forceinline__ uint32_t address_at(uint32_t address, uint32_t rank) {
  uint32_t mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

// Barriers in shared memory that count arrivals and bytes: a phase ends when all have arrived and the bytes have come that
// they announced.

__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Makes the barriers that this thread has set up visible to the cluster and to the copy engine.
__device__ __forceinline__ void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Stores into another block's shared memory, counted by a barrier there; both addresses by address_at.
__device__ __forceinline__ void store_remote_4(uint32_t to, const float (&value)[4], uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "r"(__float_as_uint(value[0])), "r"(__float_as_uint(value[1])), "r"(__float_as_uint(value[2])),
               "r"(__float_as_uint(value[3])), "r"(barrier)
               : "memory");
}

__device__ __forceinline__ void store_remote_2(uint32_t to, uint2 value, uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(to), "r"(value.x),
               "r"(value.y), "r"(barrier)
               : "memory");
}

// One thread has the copy engine bring bytes (a multiple of 16) into shared memory; a barrier counts them.
__device__ __forceinline__ void copy_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(bytes), "r"(barrier)
               : "memory");
}

#endif

}  // namespace carve

#else
#include "../carve_kernels/desk/gpu/native/emulator/ptx.h"
#endif
