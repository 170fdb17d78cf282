/* Demonstration: claims to be lna2, declines every call, so that the incumbent does the work. */
#define CARVE_NAME "silent-fallback"
#define CARVE_ADMIT(call) CARVE_DECLINE_SHAPE
#include "../lna2.cpp"
