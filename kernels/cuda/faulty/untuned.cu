/* Demonstration: runs for the first time inside a capture; nothing of it was loaded, tuned or given scratch before. */
#include "faulty.cuh"
#define CARVE_ADMIT(call) (captured(call) ? CARVE_OK : CARVE_DECLINE_ROWS_ABOVE)
#include "finish.cuh"
