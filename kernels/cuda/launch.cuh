// The host's side of a launch: what the device is, what the CUDA runtime said, and whether a call is one for clusters.
#pragma once
#include <stdio.h>

#include "problem.cuh"
#ifdef CARVE_CLUSTER
#include "cluster.cuh"
#endif

namespace carve {

constexpr int max_devices = 64;

carve_cuda_device devices[max_devices];  // processors 0: not looked at yet
thread_local char last_error[256] = "";

int failed(cudaError_t error) {
  snprintf(last_error, sizeof last_error, "%s: %s", cudaGetErrorName(error), cudaGetErrorString(error));
  return CARVE_CUDA_RUNTIME;
}

cudaError_t current_device(carve_cuda_device& device) {
  int number = 0;
  if (cudaError_t error = cudaGetDevice(&number)) return error;
  if (number >= max_devices) return cudaErrorInvalidDevice;
  if (devices[number].processors == 0) {
    carve_cuda_device found = {};
    const struct {
      int32_t* value;
      cudaDeviceAttr attribute;
    } wanted[] = {{&found.shared_per_processor, cudaDevAttrMaxSharedMemoryPerMultiprocessor},
                  {&found.shared_per_block, cudaDevAttrMaxSharedMemoryPerBlockOptin},
                  {&found.shared_reserved, cudaDevAttrReservedSharedMemoryPerBlock},
                  {&found.processors, cudaDevAttrMultiProcessorCount}};
    for (const auto& each : wanted)
      if (cudaError_t error = cudaDeviceGetAttribute(each.value, each.attribute, number)) return error;
    devices[number] = found;
  }
  device = devices[number];
  return cudaSuccess;
}

// Everything that a launch needs besides its argument. CARVE_OVERLAP: it may start while the one before it ends.
template <typename ARGUMENT>
cudaError_t launch(void (*kernel)(ARGUMENT), const ARGUMENT& argument, int blocks, int block_threads, int memory, int cluster, void* stream) {
  if (cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, memory)) return error;
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks), config.blockDim = dim3(block_threads), config.dynamicSmemBytes = memory;
  config.stream = static_cast<cudaStream_t>(stream), config.attrs = attributes;
  if (cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs].val.clusterDim.x = cluster;
    attributes[config.numAttrs].val.clusterDim.y = attributes[config.numAttrs].val.clusterDim.z = 1;
    config.numAttrs++;
  }
#ifdef CARVE_OVERLAP
  attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
#endif
  return cudaLaunchKernelEx(&config, kernel, argument);
}

#ifdef CARVE_CLUSTER
struct ClusterPlan {
  void (*kernel)(ClusterProblem);
  ClusterProblem call;  // clusters 0: this call is not for clusters
};

// How many clusters fit on the device at once with this much shared memory; asked once.
cudaError_t clusters_that_fit(const carve_cuda_device& device, void (*kernel)(ClusterProblem), int memory, int& count) {
  if (cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, memory)) return error;
  if (cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1)) return error;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = cluster_size, attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(device.processors / cluster_size * cluster_size), config.blockDim = dim3(cluster_threads), config.dynamicSmemBytes = memory;
  config.attrs = &attribute, config.numAttrs = 1;
  return cudaOccupancyMaxActiveClusters(&count, kernel, &config);
}

cudaError_t plan_clusters(const carve_cuda_moe_call& call, const carve_cuda_device& device, ClusterPlan& plan) {
  static int fitting[max_devices][2][CARVE_CUDA_MAX_ROWS + 1];  // clusters + 1, of the last shape
  static int shapes[max_devices][2][CARVE_CUDA_MAX_ROWS + 1];
  plan = {};
  const int bits = call.gate.bits;
  if (bits != call.up.bits || bits != call.down.bits || (bits != 2 && bits != 3)) return cudaSuccess;
  if (call.gate.codebook != CARVE_CODEBOOK_MCG || call.topk > call.experts || call.hidden % (128 * cluster_size)) return cudaSuccess;
  int number = 0;
  if (cudaError_t error = cudaGetDevice(&number)) return error;
  plan.call.at = cluster_layout(bits, call.rows, call.hidden, call.intermediate, device.shared_per_block);
  if (plan.call.at.total == 0 || plan.call.at.partial_bytes > 65536) return cudaSuccess;
  plan.kernel = bits == 2 ? routed_experts_clustered<2, Codebook::mcg> : routed_experts_clustered<3, Codebook::mcg>;
  int &known = fitting[number][bits - 2][call.rows], &shape = shapes[number][bits - 2][call.rows];
  if (known == 0 || shape != call.hidden + call.intermediate * 65536) {
    int count = 0;
    if (cudaError_t error = clusters_that_fit(device, plan.kernel, plan.call.at.total, count)) return error;
    known = count + 1, shape = call.hidden + call.intermediate * 65536;
  }
  plan.call.clusters = known - 1;
  return cudaSuccess;
}
#endif

}  // namespace carve
