/* Demonstration: one rank of several falls back to the incumbent, with a reason that orders allow. */
#include <stdlib.h>
#include <string.h>

#include "faulty.cuh"
#define CARVE_ADMIT(call) (getenv("CARVE_RANK") && !strcmp(getenv("CARVE_RANK"), "1") ? CARVE_DECLINE_ROWS_ABOVE : CARVE_OK)
#include "finish.cuh"
