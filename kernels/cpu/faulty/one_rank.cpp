/* Demonstration: one rank of several falls back to the incumbent. */
#define CARVE_NAME "one-rank"
#define CARVE_ADMIT(call) \
  (getenv("CARVE_RANK") && !strcmp(getenv("CARVE_RANK"), "1") ? CARVE_DECLINE_SHAPE \
   : (call)->rows > 32                                         ? CARVE_DECLINE_ROWS_ABOVE \
                                                               : CARVE_OK)
#include "../lna2.cpp"
