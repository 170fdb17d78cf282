/* Demonstration: works for prefill and is never called in decode. */
#define CARVE_NAME "prefill-only"
#define CARVE_ADMIT(call) ((call)->rows <= 64 ? CARVE_DECLINE_ROWS_BELOW : CARVE_OK)
#include "../lna2.cpp"
