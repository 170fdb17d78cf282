/* Knock-out libraries: the candidate's ABI without its work. CARVE_KNOCK_OUT_ZERO writes zeros, which must change the
 * output on every rank; without it every call is declined, which strict serving must refuse. */
#ifdef CARVE_KNOCK_OUT_ZERO
#define CARVE_NAME "knock-out-zero"
#else
#define CARVE_NAME "knock-out-decline"
#define CARVE_ADMIT(call) CARVE_DECLINE_NOT_READY
#endif

#ifdef CARVE_ENTRY
#include "exports.h"
#else
#include <string.h>

#include "abi.h"

extern "C" int CARVE_FORWARD(const carve_moe_call* call) {
  memset(call->out, 0, sizeof(float) * (size_t)call->rows * (size_t)call->hidden);
  return CARVE_OK;
}
#endif
