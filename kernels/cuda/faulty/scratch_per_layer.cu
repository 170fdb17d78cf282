/* Demonstration: asks for the scratch of every layer that a model could have, where one at a time is in use. */
#include "faulty.cuh"
#define CARVE_SCRATCH(bytes) (72 * (bytes))
#include "finish.cuh"
