// Packing and unpacking of padding for torch; rows of any dtype.
//   fusescope::padding_offsets(Tensor lengths, int seq, int total, str impl) -> (Tensor cu_seqlens, Tensor indices)
//   fusescope::padding_pack(Tensor x, Tensor indices, str impl) -> Tensor
//   fusescope::padding_unpack(Tensor packed, Tensor cu_seqlens, int batch, int seq, str impl) -> Tensor
#include <tuple>
#include <vector>

#include "../common/rows.h"
#include "padding.cuh"

namespace {
using namespace fusescope;
using torch::headeronly::ScalarType;

int64_t item_bytes(const Tensor& t) {
  int32_t dtype = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(t.get(), &dtype));
  return int64_t(aoti_torch_dtype_element_size(dtype));
}

std::tuple<Tensor, Tensor> padding_offsets(const Tensor& lengths, int64_t seq, int64_t total, const std::string& impl) {
  const bool wide = lengths.scalar_type() == ScalarType::Long;
  STD_TORCH_CHECK(lengths.dim() == 1 && lengths.sizes()[0] >= 1 && (wide || lengths.scalar_type() == ScalarType::Int),
                  "lengths is a vector of at least one int32 or int64");
  STD_TORCH_CHECK(seq >= 1 && total >= 0, "seq is at least 1 and total at least 0");
  const int64_t batch = lengths.sizes()[0];
  STD_TORCH_CHECK(seq <= INT32_MAX && batch * seq <= INT32_MAX, "unsupported: 2^31 tokens or more");
  const Tensor dense = as_contiguous(lengths);
  Tensor offsets = torch::stable::new_empty(lengths, {batch + 1}, ScalarType::Int);
  Tensor indices = torch::stable::new_empty(lengths, {total}, ScalarType::Long);
  PaddingArgs args{};
  args.request = PADDING_OFFSETS;
  args.wide_lengths = wide ? 1 : 0;
  args.lengths = dense.const_data_ptr();
  args.offsets = static_cast<int32_t*>(offsets.mutable_data_ptr());
  args.indices = static_cast<int64_t*>(indices.mutable_data_ptr());
  args.batch = batch, args.seq = seq, args.total = total;
  run("padding", impl, args, lengths);
  return {offsets, indices};
}

Tensor padding_pack(const Tensor& x, const Tensor& indices, const std::string& impl) {
  STD_TORCH_CHECK(x.dim() == 3, "x is (batch, seq, width)");
  STD_TORCH_CHECK(indices.dim() == 1 && indices.scalar_type() == ScalarType::Long && indices.is_contiguous() &&
                      indices.get_device_index() == x.get_device_index(),
                  "indices is a dense vector of int64 on the device of x");
  const Rows r = as_rows(x);
  const int64_t total = indices.sizes()[0], item = item_bytes(x);
  Tensor out = torch::stable::new_empty(x, {total, r.cols});
  PaddingArgs args{};
  args.request = PADDING_PACK;
  args.indices = static_cast<int64_t*>(const_cast<void*>(indices.const_data_ptr()));
  args.in = r.tensor.const_data_ptr(), args.out = out.mutable_data_ptr();
  args.batch = x.sizes()[0], args.seq = x.sizes()[1], args.total = total;
  args.row_bytes = r.cols * item, args.in_row = r.step * item;
  if (out.numel() > 0) run("padding", impl, args, x);
  return out;
}

Tensor padding_unpack(const Tensor& packed, const Tensor& cu_seqlens, int64_t batch, int64_t seq,
                      const std::string& impl) {
  STD_TORCH_CHECK(packed.dim() == 2, "packed is (total, width)");
  STD_TORCH_CHECK(batch >= 0 && seq >= 0 && cu_seqlens.dim() == 1 && cu_seqlens.sizes()[0] == batch + 1 &&
                      cu_seqlens.scalar_type() == ScalarType::Int && cu_seqlens.is_contiguous() &&
                      cu_seqlens.get_device_index() == packed.get_device_index(),
                  "cu_seqlens is a dense vector of batch + 1 int32 on the device of packed");
  const Rows r = as_rows(packed);
  const int64_t item = item_bytes(packed);
  Tensor out = torch::stable::new_empty(packed, {batch, seq, r.cols});
  PaddingArgs args{};
  args.request = PADDING_UNPACK;
  args.offsets = static_cast<int32_t*>(const_cast<void*>(cu_seqlens.const_data_ptr()));
  args.in = r.tensor.const_data_ptr(), args.out = out.mutable_data_ptr();
  args.batch = batch, args.seq = seq, args.total = packed.sizes()[0];
  args.row_bytes = r.cols * item, args.in_row = r.step * item;
  if (out.numel() > 0) run("padding", impl, args, packed);
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def("padding_offsets(Tensor lengths, int seq, int total, str impl) -> (Tensor, Tensor)");
  m.def("padding_pack(Tensor x, Tensor indices, str impl) -> Tensor");
  m.def("padding_unpack(Tensor packed, Tensor cu_seqlens, int batch, int seq, str impl) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) {
  m.impl("padding_offsets", TORCH_BOX(&padding_offsets));
  m.impl("padding_pack", TORCH_BOX(&padding_pack));
  m.impl("padding_unpack", TORCH_BOX(&padding_unpack));
}
