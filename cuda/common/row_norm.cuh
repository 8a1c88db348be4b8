// LayerNorm of a row in registers, whatever the row is the sum of.
#pragma once
#include "reduce.cuh"
#include "row.cuh"

namespace row {

// Writes (v - mean) / sqrt(variance + eps) weight + shift of the row that a group has in registers as row `r` of out.
// The row comes less its first element, which keeps the variance exact where the mean is large; sum: of this thread's
// elements. Optional: weight and shift may be nullptr.
template <bool Optional, typename Regs, typename T>
__device__ __forceinline__ void normalise(Regs& regs, float sum, const T* weight, const T* shift, T* out, int64_t r,
                                          float eps) {
  const float mean = group_reduce<Sum, Regs::Group>(sum) / float(regs.cols);
  float squares = 0.0f;
  regs.each([&](float& v) {
    v -= mean;
    squares += v * v;
  });
  const float scale = rsqrtf(group_reduce<Sum, Regs::Group>(squares) / float(regs.cols) + eps);
  out += r * regs.cols;  // this late, since no register is free for the address before
  regs.each_pack([&](int at, float* v) {
    float w[Regs::Width], s[Regs::Width];
    if (!Optional || weight) Regs::read_pack(weight + at, w);
    if (!Optional || shift) Regs::read_pack(shift + at, s);
#pragma unroll
    for (int e = 0; e < Regs::Width; ++e)
      v[e] = v[e] * scale * (!Optional || weight ? w[e] : 1.0f) + (!Optional || shift ? s[e] : 0.0f);
    Regs::write_pack(out + at, v);
  });
}

}  // namespace row
