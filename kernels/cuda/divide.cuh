// Divisions without dividing: a processor needs 150 cycles for one whose divisor it has not seen, and here they would stand in a chain.
#pragma once
#include "abi.h"

namespace carve {

// By a number that the host knows: two multiplications and a shift, exact below 2^31.
struct Divisor {
  uint32_t factor;
  int shift;

  __device__ __forceinline__ int divide(uint32_t number) const { return static_cast<int>(uint64_t(number) * factor >> shift); }
};

inline Divisor divisor(uint32_t number) {
  int bits = 0;
  while (1ull << bits < number) bits++;
  return {static_cast<uint32_t>((1ull << (31 + bits)) / number + 1), 31 + bits};
}

// By a number that the routes say. Quotients below 4096, numbers below 2^31: the estimate is one off at most.
struct Quotient {
  uint32_t by;
  float inverse;

  __device__ __forceinline__ explicit Quotient(uint32_t number) { by = number, inverse = __fdividef(1.0f, static_cast<float>(number)); }

  __device__ __forceinline__ int divide(uint32_t number) const {
    const int estimate = static_cast<int>(static_cast<float>(number) * inverse), left = static_cast<int>(number - estimate * by);
    return estimate + (left >= static_cast<int>(by)) - (left < 0);
  }
};

}  // namespace carve
