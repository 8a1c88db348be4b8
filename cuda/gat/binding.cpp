// Graph attention for torch: fusescope::gat(x (N, H, F), left (H, F), right (H, F), row_offsets, columns, order, slope,
// impl) -> (N, H, F).
#include "../common/heads.h"
#include "gat.cuh"

namespace {
using namespace fusescope;

Tensor gat(const Tensor& x, const Tensor& left, const Tensor& right, const Tensor& row_offsets, const Tensor& columns,
           const Tensor& order, double slope, const std::string& impl) {
  STD_TORCH_CHECK(x.dim() == 3, "x is (nodes, heads, features)");
  const int64_t nodes = x.size(0), heads = x.size(1), features = x.size(2);
  STD_TORCH_CHECK(nodes >= 1 && nodes < (int64_t(1) << 31) && heads >= 1, "sizes are at least 1, nodes below 2^31");
  STD_TORCH_CHECK(features >= 1 && features <= 256, "unsupported: ", features, " features (1 to 256 are)");
  for (const Tensor* t : {&left, &right})
    STD_TORCH_CHECK(t->dim() == 2 && t->size(0) == heads && t->size(1) == features &&
                        t->scalar_type() == x.scalar_type() && t->get_device_index() == x.get_device_index(),
                    "left and right are (heads, features) of x's dtype on its device");
  const Tensor rows = features == 1 || x.stride(2) == 1 ? x : torch::stable::contiguous(x);
  const Tensor a_left = as_contiguous(left), a_right = as_contiguous(right);
  Tensor out = torch::stable::new_empty(x, {nodes, heads, features});
  GatArgs args{};
  args.x = rows.const_data_ptr();
  args.left = a_left.const_data_ptr();
  args.right = a_right.const_data_ptr();
  args.out = out.mutable_data_ptr();
  args.x_step[0] = rows.stride(0), args.x_step[1] = rows.stride(1);
  args.row_offsets = index_list(row_offsets, "row_offsets", nodes + 1, x);
  args.columns = index_list(columns, "columns", columns.numel(), x);
  args.order = index_list(order, "order", nodes, x);
  args.nodes = nodes, args.heads = heads, args.features = int32_t(features);
  args.slope = float(slope);
  args.dtype = dtype_of(x);
  run("gat", impl, args, x);
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def(
      "gat(Tensor x, Tensor left, Tensor right, Tensor row_offsets, Tensor columns, Tensor order, float slope, str "
      "impl) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("gat", TORCH_BOX(&gat)); }
