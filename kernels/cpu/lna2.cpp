/* lna2: tickets over experts, an expert's weights decoded once for all its rows, small-R inner loops.
 * For decode-size calls only: more rows than MAX_ROWS are declined and left to the incumbent. */
#ifndef CARVE_NAME
#define CARVE_NAME "lna2"
#endif

#ifndef CARVE_ADMIT
#define CARVE_MAX_ROWS 32
#define CARVE_ADMIT(call) ((call)->rows > CARVE_MAX_ROWS ? CARVE_DECLINE_ROWS_ABOVE : CARVE_OK)
#define CARVE_TUNED "\"max_rows\":32,\"chunk_tiles\":16"
#endif

#ifdef CARVE_ENTRY
#include "exports.h"
#else
#include "tickets.h"

extern "C" int CARVE_FORWARD(const carve_moe_call* call) {
  const int status = check_call(*call);
  return status ? status : forward_by_tickets(*call);
}
#endif
