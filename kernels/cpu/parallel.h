/* Threads are the host's: work is handed out by tickets from one counter, so any number of threads may turn up. */
#pragma once
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>

#include "abi.h"

namespace {

constexpr int MAX_THREADS = 256;

inline int thread_count(const carve_parallel* parallel) {
  if (!parallel || !parallel->run || parallel->threads < 2) return 1;
  return parallel->threads < MAX_THREADS ? parallel->threads : MAX_THREADS;
}

/* Runs body(thread) on every thread of the host's pool and returns when all have finished. */
template <class Body>
inline void on_all_threads(const carve_parallel* parallel, Body body) {
  struct Job {
    Body* body;
    const carve_parallel* parallel;
  } job = {&body, parallel};
  if (thread_count(parallel) == 1) {
    body(0);
    return;
  }
  parallel->run(
      [](void* data) {
        Job* mine = (Job*)data;
        (*mine->body)(mine->parallel->thread_id());
      },
      &job, (unsigned)thread_count(parallel), 0);
}

/* The next ticket. */
inline int take(int* counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }

inline void finish(int* counter) { __atomic_fetch_add(counter, 1, __ATOMIC_RELEASE); }

/* Waits for work that another thread has already taken; never for work that nobody has. */
inline void wait_for(const int* counter, int value) {
  for (int spins = 0; __atomic_load_n(counter, __ATOMIC_ACQUIRE) < value; ++spins) {
    if (spins < 4096)
      __builtin_ia32_pause();
    else
      sched_yield();
  }
}

/* One growing block of memory per calling thread, cut into aligned pieces. The pool's threads must reach the caller's
 * block through a reference: naming a thread-local variable inside a lambda means the running thread's own. */
class Scratch {
 public:
  ~Scratch() { free(base_); }

  /* First pass: sizes; second pass, after reserve(): pieces. Returns an offset. */
  size_t piece(size_t bytes) {
    const size_t at = used_;
    used_ += (bytes + 63) / 64 * 64;
    return at;
  }

  /* False when memory is short. */
  bool reserve() {
    if (used_ > size_) {
      free(base_);
      size_ = 0;
      base_ = (char*)aligned_alloc(64, used_);
      if (!base_) return false;
      size_ = used_;
    }
    return true;
  }

  static Scratch& of_this_thread() {
    static thread_local Scratch scratch;
    scratch.used_ = 0;
    return scratch;
  }

  template <class T>
  T* at(size_t offset) const {
    return (T*)(base_ + offset);
  }

 private:
  char* base_ = nullptr;
  size_t size_ = 0, used_ = 0;
};

}  // namespace
