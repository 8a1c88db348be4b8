// SpMM for torch: fusescope::spmm(values (..., nnz), v (..., S_k, D), row_offsets, columns, order, long_rows, rows,
// block, impl)
// -> (..., rows, D); for BSR (block = 16, 32 or 64; see spmm.cuh) values is (..., blocks, block, block).
//
// Indices are not looked at (that would stall the GPU): whoever calls this directly answers for columns in [0, S_k).
#include "../common/heads.h"
#include "spmm.cuh"

namespace {
using namespace fusescope;

Tensor spmm(const Tensor& values, const Tensor& v, const Tensor& row_offsets, const Tensor& columns,
            const Tensor& order, int64_t long_rows, int64_t rows, int64_t block, const std::string& impl) {
  check_block(block);
  const int item = block ? 3 : 1;
  STD_TORCH_CHECK(v.dim() >= 2 && values.dim() == v.dim() - 2 + item,
                  "values and v are (..., nnz), or (..., blocks, block, block), and (..., S_k, D)");
  STD_TORCH_CHECK(values.scalar_type() == v.scalar_type() && values.get_device_index() == v.get_device_index(),
                  "values and v have one dtype and lie on one device");
  std::vector<int64_t> shape = same_heads(v, 2, values, item, "values and v");
  const int64_t lists = block ? (rows + block - 1) / block : rows, depth = v.sizes()[v.dim() - 1],
                keys = v.sizes()[v.dim() - 2], nnz = columns.numel();
  STD_TORCH_CHECK(rows >= 0 && values.sizes()[values.dim() - item] == nnz, "values has ",
                  values.sizes()[values.dim() - item], " entries a head, the structure ", nnz);
  STD_TORCH_CHECK(!block || (values.sizes()[values.dim() - 1] == block && values.sizes()[values.dim() - 2] == block),
                  "values holds blocks of the structure's side");
  STD_TORCH_CHECK(nnz < (int64_t(1) << 31), "unsupported: 2^31 kept elements or more");
  const Heads ps = as_heads(values, item), vs = as_heads(v, 2);
  SpmmArgs args{};
  args.row_offsets = index_list(row_offsets, "row_offsets", lists + 1, v);
  args.columns = index_list(columns, "columns", nnz, v);
  args.order = index_list(order, "order", lists, v);
  STD_TORCH_CHECK(long_rows >= 0 && long_rows <= lists, "long_rows lies between 0 and the number of rows");
  shape.push_back(rows);
  shape.push_back(depth);
  Tensor out = torch::stable::new_empty(v, shape);
  args.values = ps.tensor.const_data_ptr();
  args.v = vs.tensor.const_data_ptr();
  args.out = out.mutable_data_ptr();
  args.values_step[0] = ps.outer_step, args.values_step[1] = ps.inner_step;
  args.v_step[0] = vs.outer_step, args.v_step[1] = vs.inner_step, args.v_step[2] = vs.row_step;
  args.long_rows = long_rows;
  args.outer = vs.outer, args.inner = vs.inner, args.rows = rows, args.keys = keys, args.nnz = nnz, args.depth = depth;
  args.dtype = dtype_of(v), args.block = int32_t(block);
  if (out.numel() > 0) run("spmm", impl, args, v);
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def(
      "spmm(Tensor values, Tensor v, Tensor row_offsets, Tensor columns, Tensor order, int long_rows, int rows, int "
      "block, str impl) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("spmm", TORCH_BOX(&spmm)); }
