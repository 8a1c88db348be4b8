// What our own matrix products share whatever they are made of: which operands they take, and dispatch.
#pragma once
#include "../common/device.cuh"
#include "../common/launch.cuh"
#include "linear.cuh"

namespace {
// Why these kernels do not support a product, or nullptr.
inline const char* unsupported(const LinearArgs& args) {
  if (args.dtype == FS_FLOAT32)
    return "unsupported: float32 (our own products take float16 and bfloat16; use v2_measured)";
  if (args.transposed) return "unsupported: a weight that is the transpose of a dense one (use v2_measured)";
  if (args.terms % 8 || args.outputs % 8 || args.x_row % 8 || args.weight_row % 8)
    return "unsupported: rows that are not multiples of 16 bytes apart (use v2_measured)";
  if (!aligned(args.x, 16) || !aligned(args.weight, 16) || !aligned(args.out, 16) || !aligned(args.bias, 4) ||
      !aligned(args.residual, 4) || args.residual_row % 2)
    return "unsupported: addresses that are not multiples of 16 bytes (use v2_measured)";
  if (args.rows > INT32_MAX || args.outputs > INT32_MAX || args.terms > INT32_MAX)
    return "unsupported: sizes of 2^31 and more";
  return nullptr;
}

// Handles a call of such a kernel: rejects it, counts its algorithms (LINEAR_OWN), or returns body(zero of the C++
// type, activation as a constant). Gated: whether the kernel computes SwiGLU.
template <bool Gated = false, typename Body> const char* dispatch_product(const LinearArgs& args, Body body) {
  if (const char* why = unsupported(args)) return why;
  if (!Gated && args.activation == LINEAR_SWIGLU)
    return "unsupported: SwiGLU in the product's launch (use v6_whole_lines)";
  if (args.request == LINEAR_LIST) {
    *args.count = LINEAR_OWN;
    return nullptr;
  }
  auto with = [&](auto zero) {
    using std::integral_constant;
    switch (args.activation) {
      case LINEAR_GELU_ERF:
        return body(zero, integral_constant<int, LINEAR_GELU_ERF>{});
      case LINEAR_GELU_TANH:
        return body(zero, integral_constant<int, LINEAR_GELU_TANH>{});
      case LINEAR_SWIGLU:
        if constexpr (Gated) return body(zero, integral_constant<int, LINEAR_SWIGLU>{});
    }
    return body(zero, integral_constant<int, LINEAR_NONE>{});
  };
  return args.dtype == FS_FLOAT16 ? with(__half{}) : with(__nv_bfloat16{});
}
}  // namespace
