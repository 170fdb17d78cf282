/* Demonstration: a kernel fault. Half of k of the down projection is left out on the first routed layer, for any number
 * of rows (in the campaign such a fault showed as a norm ratio of 1/sqrt(2)). */
#define CARVE_NAME "half-k"
#define CARVE_ADMIT(call) CARVE_OK
#define CARVE_DOWN_TILES(call, tiles) ((call).layer == 0 ? (tiles) / 2 : (tiles))
#include "../lna2.cpp"
