// A linear layer with 8-bit weights: out = activation(scale_n * (x . weight_n) + bias_n) + residual, summed in fp32.
//
// A weight is an int8 or an e4m3 number; row n of the matrix has one fp32 scale.
#pragma once
#include "../common/eight_bit.h"
#include "../common/interface.h"

enum WeightOnlyActivation { WEIGHT_ONLY_NONE = 0, WEIGHT_ONLY_GELU_ERF = 1, WEIGHT_ONLY_GELU_TANH = 2 };

struct LinearWeightOnlyArgs {
  const void* x;                 // row r begins at x[r * x_row]; its `terms` elements are contiguous
  const uint8_t* weight;         // (outputs, terms): row n begins at weight[n * weight_row]
  const float* scales;           // `outputs` elements
  const void* bias;              // `outputs` elements, or nullptr
  const void* residual;          // row r begins at residual[r * residual_row], or nullptr
  void* out;                     // rows x outputs elements, dense, never aliasing an input
  int64_t rows, outputs, terms;  // >= 1
  int64_t x_row, weight_row, residual_row;
  int32_t format;      // WeightFormat
  int32_t activation;  // WeightOnlyActivation
  int32_t settled;     // 1: the kernel before this one did not write weight
  int32_t dtype;       // FusescopeDtype of x, bias, residual and out
};
