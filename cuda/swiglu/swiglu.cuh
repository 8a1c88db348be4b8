// SwiGLU: out[r, j] = silu(gate[r, j]) * up[r, j], silu(g) = g / (1 + exp(-g)).
#pragma once
#include "../common/interface.h"

struct SwigluArgs {
  const void* gate;  // row r begins at gate[r * gate_row]; its cols elements are contiguous
  const void* up;    // row r begins at up[r * up_row]
  void* out;         // rows x cols elements, dense, never aliasing an input
  int64_t rows;      // >= 1
  int64_t cols;      // >= 1
  int64_t gate_row;  // distances between rows in elements, >= 0
  int64_t up_row;
  int32_t dtype;  // FusescopeDtype of gate, up and out
};
