// Tensor add, out = a + b, elementwise over n contiguous elements.
#pragma once
#include "../common/interface.h"

struct AddArgs {
  const void* a;  // n elements of dtype
  const void* b;  // n elements of dtype
  void* out;      // n elements of dtype, never aliasing a or b
  int64_t n;      // >= 0
  int32_t dtype;  // FusescopeDtype
};
