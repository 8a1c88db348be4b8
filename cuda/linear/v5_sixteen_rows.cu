// For up to sixteen rows, the weight as left operand of mma.sync, from 16-byte loads straight to registers.
// archs: sm_90a
// expects: HMMA
//
// Weight and bias are requested before the previous kernel has ended (settled), the residual before the product. The
// same as cuda/linear_weight_only/v3_tensor_core.cu for 16-bit weights.
#include "../common/dependent.cuh"
#include "../common/few_rows.cuh"
#include "../common/gelu.h"
#include "own_product.cuh"

namespace {
using few_rows::THREADS;

template <typename T, int Activation, int Tiles, int Eights>
__global__ void __launch_bounds__(THREADS, 2) linear_sixteen_rows(const T* x, int64_t x_row, const T* weight,
                                                                  int64_t weight_row, const T* bias, const T* residual,
                                                                  int64_t residual_row, T* out, int rows, int outputs,
                                                                  int terms, bool settled) {
  using Product = few_rows::Product<T, Tiles, Eights>;
  Product product(weight, weight_row, outputs, terms);
  const int n = Product::output();
  if (!settled) wait_for_previous();
  product.start();
  // As they are: a conversion would wait for its load.
  T shift = from_float<T>(0.0f), onto[Product::ends];
  if (bias && n < outputs) shift = bias[n];
  const T *row[Eights], *add[Product::ends];
#pragma unroll
  for (int j = 0; j < Eights; ++j) row[j] = x + Product::own_row(j, rows) * x_row + product.k, have_ready(row[j]);
#pragma unroll
  for (int i = 0; i < Product::ends; ++i) {
    const bool adds = residual && Product::row(i) < rows && n < outputs;
    add[i] = adds ? residual + Product::row(i) * residual_row + n : nullptr, have_ready(add[i]);
  }
  wait_for_previous();
  let_next_start();
#pragma unroll
  for (int i = 0; i < Product::ends; ++i) {
    onto[i] = from_float<T>(0.0f);
    if (add[i]) onto[i] = *add[i];
  }
  product.run(
      rows, [&](int j, int ahead) { return few_rows::load_written(row[j] + ahead); },
      [&](int i, float whole) {
        whole += to_float(shift);
        if constexpr (Activation == LINEAR_GELU_ERF) whole = gelu_erf(whole, [](float u) { return __expf(u); });
        if constexpr (Activation == LINEAR_GELU_TANH) whole = gelu_tanh(whole, [](float u) { return __expf(u); });
        out[int64_t(Product::row(i)) * outputs + n] = from_float<T>(whole + to_float(onto[i]));
      });
}

template <typename T, int Activation, int Tiles, int Eights>
const char* launch(const LinearArgs& args, cudaStream_t stream) {
  const int64_t blocks = (args.outputs + 16 * Tiles - 1) / (16 * Tiles);
  return launch_dependent(linear_sixteen_rows<T, Activation, Tiles, Eights>, unsigned(blocks), unsigned(THREADS), 0,
                          stream, 1, static_cast<const T*>(args.x), args.x_row, static_cast<const T*>(args.weight),
                          args.weight_row, static_cast<const T*>(args.bias), static_cast<const T*>(args.residual),
                          args.residual_row, static_cast<T*>(args.out), int(args.rows), int(args.outputs),
                          int(args.terms), args.settled != 0);
}
}  // namespace

FUSESCOPE_KERNEL(const LinearArgs* args, void* stream) {
  if (args->rows > 16) return "unsupported: more than 16 rows (use v4_few_rows)";
  if (args->terms > INT32_MAX / 2) return "unsupported: more than 2^30 terms";
  return dispatch_product(*args, [&](auto zero, auto activation) {
    using T = decltype(zero);
    constexpr int how = decltype(activation)::value;
    auto on = static_cast<cudaStream_t>(stream);
    // Two tiles per block share x, where that still leaves every multiprocessor a block.
    const bool two = args->outputs >= int64_t(multiprocessors()) * 32;
    if (args->rows <= 8) return two ? launch<T, how, 2, 1>(*args, on) : launch<T, how, 1, 1>(*args, on);
    return two ? launch<T, how, 2, 2>(*args, on) : launch<T, how, 1, 2>(*args, on);
  });
}
