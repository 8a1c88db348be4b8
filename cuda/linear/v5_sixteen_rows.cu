// For up to sixteen rows, the weight as left operand of mma.sync, from 16-byte loads straight to registers.
// archs: sm_90a
// expects: HMMA
#include "sixteen_rows.cuh"

FUSESCOPE_KERNEL(const LinearArgs* args, void* stream) { return sixteen_rows<false, false>(*args, stream); }
