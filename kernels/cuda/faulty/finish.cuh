/* The interface of a demonstration; see faulty.cuh. */
#ifndef CARVE_ADMIT
#define CARVE_ADMIT(call) CARVE_OK
#endif
#ifndef CARVE_SCRATCH
#define CARVE_SCRATCH(bytes) (bytes)
#endif

EXPORT int carve_cuda_moe_forward(const carve_cuda_moe_call* call) {
  if (int status = CARVE_ADMIT(*call)) return status;
  return honest_forward(call);
}

EXPORT uint64_t carve_cuda_moe_scratch(int32_t rows, int32_t hidden, int32_t intermediate, int32_t topk, int32_t experts) {
  return CARVE_SCRATCH(honest_scratch(rows, hidden, intermediate, topk, experts));
}
