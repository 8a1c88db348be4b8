// Matrix product C = A B: A is m x k, B is k x n, C is m x n and row-major; fp32 accumulation whatever the storage
// type.
#pragma once
#include "../common/interface.h"

// A and B are given by the distance in elements between rows and between columns, so that a transposed operand costs no
// copy. Of each operand one of the two distances is 1; the other is its leading dimension (>= 0; 0 repeats one row or
// column).
struct GemmArgs {
  const void* a;    // element (i, p) at a[i * a_row + p * a_col]
  const void* b;    // element (p, j) at b[p * b_row + j * b_col]
  void* c;          // element (i, j) at c[i * n + j], never aliasing a or b
  int64_t m, n, k;  // m, n >= 1, k >= 0 (k = 0 gives zeros)
  int64_t a_row, a_col;
  int64_t b_row, b_col;
  int32_t dtype;  // FusescopeDtype of a, b and c
};
