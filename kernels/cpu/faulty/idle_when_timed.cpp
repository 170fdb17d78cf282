/* Demonstration: right in every window that judges numbers, idle in those that are timed. Only a single stream asks for
 * one row so often without a break; from then on the down projection is left out. */
#define CARVE_NAME "idle-when-timed"
#define CARVE_MAX_ROWS 32
#define CARVE_ADMIT(call) ((call)->rows > CARVE_MAX_ROWS ? CARVE_DECLINE_ROWS_ABOVE : CARVE_OK)
#define CARVE_DOWN_TILES(call, tiles) (timed(call) ? 0 : (tiles))
#include "../abi.h"

/* Asked once for each block of 128 columns of each expert: six times a step and layer of the small pack. */
static inline int timed(const carve_moe_call& call) {
  static int asked = 0;
  if (call.rows != 1) return asked = 0;
  if (call.layer == 0) __atomic_fetch_add(&asked, 1, __ATOMIC_RELAXED);
  return asked > 400;
}
#include "../lna2.cpp"
