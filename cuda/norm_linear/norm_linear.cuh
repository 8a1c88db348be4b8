// A norm and the linear layer behind it: out = activation(norm(x) weight^T + bias), products summed in fp32.
//
// norm: LayerNorm, (x - mean) / sqrt(variance + eps) * scale + shift, where there is a shift, else RMSNorm, x /
// sqrt(mean of x^2 + eps) * scale; computed in fp32 and rounded to the dtype, as a kernel of its own would store it.
#pragma once
#include "../common/interface.h"

enum NormLinearActivation { NORM_LINEAR_NONE = 0, NORM_LINEAR_GELU_ERF = 1, NORM_LINEAR_GELU_TANH = 2 };

struct NormLinearArgs {
  const void* x;                 // row r begins at x[r * x_row]; its `terms` elements are contiguous
  const void* scale;             // `terms` elements
  const void* shift;             // `terms` elements, or nullptr
  const void* weight;            // (outputs, terms): row n begins at weight[n * weight_row]
  const void* bias;              // `outputs` elements, or nullptr
  void* out;                     // rows x outputs elements, dense, never aliasing an input
  int64_t rows, outputs, terms;  // >= 1
  int64_t x_row, weight_row;
  float eps;
  int32_t activation;  // NormLinearActivation
  int32_t settled;     // the kernel before this one on the stream writes x alone: all else may be read before it ends
  int32_t dtype;       // FusescopeDtype of all of them
};
