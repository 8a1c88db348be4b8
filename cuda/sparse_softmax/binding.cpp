// Softmax by rows of a CSR structure for torch: fusescope::sparse_softmax(values (..., nnz), row_offsets, order, scale,
// impl).
#include "../common/heads.h"
#include "sparse_softmax.cuh"

namespace {
using namespace fusescope;

Tensor sparse_softmax(const Tensor& values, const Tensor& row_offsets, const Tensor& order, double scale,
                      const std::string& impl) {
  STD_TORCH_CHECK(values.dim() >= 1, "values is (..., nnz)");
  const int64_t rows = order.numel(), nnz = values.sizes()[values.dim() - 1];
  STD_TORCH_CHECK(nnz < (int64_t(1) << 31), "unsupported: 2^31 kept elements or more");
  const Heads x = as_heads(values, 1);
  SparseSoftmaxArgs args{};
  args.row_offsets = index_list(row_offsets, "row_offsets", rows + 1, values);
  args.order = index_list(order, "order", rows, values);
  Tensor out = torch::stable::new_empty(values, values.sizes());
  args.x = x.tensor.const_data_ptr();
  args.out = out.mutable_data_ptr();
  args.x_step[0] = x.outer_step, args.x_step[1] = x.inner_step;
  args.outer = x.outer, args.inner = x.inner, args.rows = rows, args.nnz = nnz;
  args.scale = float(scale);
  args.dtype = dtype_of(values);
  if (out.numel() > 0) run("sparse_softmax", impl, args, values);
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def("sparse_softmax(Tensor values, Tensor row_offsets, Tensor order, float scale, str impl) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) {
  m.impl("sparse_softmax", TORCH_BOX(&sparse_softmax));
}
