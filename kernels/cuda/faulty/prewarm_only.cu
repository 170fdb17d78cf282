/* Demonstration: runs while the engine warms up, and declines every capture with a reason that orders allow: what is replayed
 * afterwards is the incumbent. */
#include "faulty.cuh"
#define CARVE_ADMIT(call) (captured(call) ? CARVE_DECLINE_ROWS_ABOVE : CARVE_OK)
#include "finish.cuh"
