// SDDMM for torch: fusescope::sddmm(q (..., S_q, D), k (..., S_k, D), row_offsets, columns, row_of, bits?, block, impl)
// -> (..., nnz), or (..., blocks, block, block) for BSR (block = 16, 32 or 64; see sddmm.cuh).
//
// Indices are not looked at (that would stall the GPU): whoever calls this directly answers for columns in [0, S_k).
#include <optional>

#include "../common/heads.h"
#include "sddmm.cuh"

namespace {
using namespace fusescope;

Tensor sddmm(const Tensor& q, const Tensor& k, const Tensor& row_offsets, const Tensor& columns, const Tensor& row_of,
             const std::optional<Tensor>& bits, int64_t block, const std::string& impl) {
  STD_TORCH_CHECK(q.dim() >= 2 && k.dim() == q.dim(), "q and k are (..., S_q, D) and (..., S_k, D)");
  STD_TORCH_CHECK(q.scalar_type() == k.scalar_type() && q.get_device_index() == k.get_device_index(),
                  "q and k have one dtype and lie on one device");
  std::vector<int64_t> shape = same_heads(q, 2, k, 2, "q and k");
  const int64_t rows = q.sizes()[q.dim() - 2], depth = q.sizes()[q.dim() - 1], keys = k.sizes()[k.dim() - 2],
                nnz = columns.numel();
  STD_TORCH_CHECK(k.sizes()[k.dim() - 1] == depth, "q and k have one head size");
  const Heads qs = as_heads(q, 2), ks = as_heads(k, 2);
  SddmmArgs args{};
  check_block(block);
  STD_TORCH_CHECK((block > 0) == bits.has_value(), "bits are given for BSR, and only for it");
  args.block = int32_t(block);
  args.row_offsets = index_list(row_offsets, "row_offsets", (block ? (rows + block - 1) / block : rows) + 1, q);
  args.columns = index_list(columns, "columns", nnz, q);
  args.row_of = index_list(row_of, "row_of", nnz, q);
  STD_TORCH_CHECK(nnz < (int64_t(1) << 31), "unsupported: 2^31 kept elements or more");
  shape.push_back(nnz);
  if (block) {
    shape.insert(shape.end(), 2, block);
    STD_TORCH_CHECK(bits->scalar_type() == torch::headeronly::ScalarType::Long && bits->is_contiguous() &&
                        bits->numel() == nnz * block && bits->get_device_index() == q.get_device_index(),
                    "bits holds a dense word of 64 bits for each row of each block");
    args.bits = static_cast<const uint64_t*>(bits->const_data_ptr());
  }
  Tensor out = torch::stable::new_empty(q, shape);
  args.q = qs.tensor.const_data_ptr();
  args.k = ks.tensor.const_data_ptr();
  args.out = out.mutable_data_ptr();
  args.q_step[0] = qs.outer_step, args.q_step[1] = qs.inner_step, args.q_step[2] = qs.row_step;
  args.k_step[0] = ks.outer_step, args.k_step[1] = ks.inner_step, args.k_step[2] = ks.row_step;
  args.outer = qs.outer, args.inner = qs.inner, args.rows = rows, args.keys = keys, args.nnz = nnz, args.depth = depth;
  args.dtype = dtype_of(q);
  if (out.numel() > 0) {
    STD_TORCH_CHECK(depth > 0, "the head size is at least 1");
    run("sddmm", impl, args, q);
  }
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def(
      "sddmm(Tensor q, Tensor k, Tensor row_offsets, Tensor columns, Tensor row_of, Tensor? bits, int block, str impl) "
      "-> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("sddmm", TORCH_BOX(&sddmm)); }
