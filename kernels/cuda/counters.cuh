// The library's own count of launches and rows, kept on the device so that replays of a graph are counted as well.
#pragma once
#include "abi.h"

namespace carve {

__device__ carve_layer_counters layer_counters[CARVE_MAX_LAYERS];

// By one thread of a launch.
__device__ __forceinline__ void count_launch(int layer, int rows) {
  carve_layer_counters& counters = layer_counters[layer];
  atomicAdd(reinterpret_cast<unsigned long long*>(&counters.launches), 1ull);
  atomicAdd(reinterpret_cast<unsigned long long*>(&counters.rows[rows < CARVE_ROW_BINS - 1 ? rows : CARVE_ROW_BINS - 1]), 1ull);
}

}  // namespace carve
