// Batched matrix product for torch: fusescope::bmm(Tensor a, Tensor b, str impl) -> Tensor, with the shapes of
// torch.matmul.
#include "../common/matrix.h"
#include "bmm.cuh"

#include <vector>

namespace {
using namespace fusescope;

// Size of batch dimension i out of `rank`, counted from the outermost of the broadcast shape; 1 where the tensor has
// none.
int64_t batch_size(const Tensor& t, int64_t i, int64_t rank) {
  const int64_t own = t.dim() - 2, j = i - (rank - own);
  return j < 0 ? 1 : t.sizes()[j];
}

int64_t batch_step(const Tensor& t, int64_t i, int64_t rank) {
  const int64_t own = t.dim() - 2, j = i - (rank - own);
  return j < 0 || t.sizes()[j] == 1 ? 0 : t.strides()[j];
}

// Appends a dimension inside the others, or merges it with the last one where both operands go on evenly from that into
// this.
void append(BmmArgs& args, int64_t size, int64_t a_step, int64_t b_step) {
  if (size == 1) return;
  if (args.rank > 0) {
    const int last = args.rank - 1;
    if (args.a_step[last] == size * a_step && args.b_step[last] == size * b_step) {
      args.size[last] *= size;
      args.a_step[last] = a_step;
      args.b_step[last] = b_step;
      return;
    }
  }
  STD_TORCH_CHECK(args.rank < BMM_BATCH_DIMS, "unsupported: more than ", BMM_BATCH_DIMS,
                  " batch dimensions that do not merge");
  args.size[args.rank] = size;
  args.a_step[args.rank] = a_step;
  args.b_step[args.rank] = b_step;
  ++args.rank;
}

Tensor bmm(const Tensor& a, const Tensor& b, const std::string& impl) {
  STD_TORCH_CHECK(a.dim() >= 1 && b.dim() >= 1, "bmm takes tensors of at least one dimension");
  STD_TORCH_CHECK(a.scalar_type() == b.scalar_type() && a.get_device_index() == b.get_device_index(),
                  "bmm takes two tensors of one dtype and device");
  // A vector on the left is a row, on the right a column; its dimension is absent from the result, as in torch.matmul.
  Tensor x = as_matrix(a.dim() == 1 ? torch::stable::unsqueeze(a, 0) : a);
  Tensor y = as_matrix(b.dim() == 1 ? torch::stable::unsqueeze(b, 1) : b);
  const int64_t m = x.sizes()[x.dim() - 2], k = x.sizes()[x.dim() - 1], n = y.sizes()[y.dim() - 1];
  const int64_t other = y.sizes()[y.dim() - 2];
  STD_TORCH_CHECK(other == k, "bmm takes (..., m, k) and (..., k, n); k is ", k, " and ", other);

  BmmArgs args{};
  args.batch = 1;
  const int64_t rank = (x.dim() > y.dim() ? x.dim() : y.dim()) - 2;
  std::vector<int64_t> shape;
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t p = batch_size(x, i, rank), q = batch_size(y, i, rank), size = p == 1 ? q : p;
    STD_TORCH_CHECK(p == q || p == 1 || q == 1, "bmm: batch dimensions must be equal or 1, not ", p, " and ", q);
    shape.push_back(size);
    args.batch *= size;
    append(args, size, batch_step(x, i, rank), batch_step(y, i, rank));
  }
  if (a.dim() > 1) shape.push_back(m);
  if (b.dim() > 1) shape.push_back(n);
  Tensor out = torch::stable::new_empty(x, shape);

  const MatrixStrides xs = matrix_strides(x), ys = matrix_strides(y);
  args.matrix =
      GemmArgs{x.const_data_ptr(), y.const_data_ptr(), out.mutable_data_ptr(), m, n, k, xs.row, xs.col, ys.row, ys.col,
               dtype_of(x)};
  if (args.rank == 1 && args.b_step[0] == 0 && (m == 1 || args.a_step[0] == m * xs.row)) {
    // One B for all: the batch is more rows of A. With one row a matrix, the distance between matrices is that between
    // rows, and the elements of a row must then be contiguous.
    if (m > 1 || x.strides()[x.dim() - 1] == 1 || k == 1) {
      args.matrix.m = m * args.batch;
      args.matrix.a_row = args.a_step[0] / m;
      if (m == 1) args.matrix.a_col = 1;
      args.batch = 1;
      args.rank = 0;
    }
  }
  if (out.numel() > 0) run("bmm", impl, args, x);
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) { m.def("bmm(Tensor a, Tensor b, str impl) -> Tensor"); }
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("bmm", TORCH_BOX(&bmm)); }
