// For the bindings of the sparse operators: a tensor whose leading dimensions are heads that share one structure.
#pragma once
#include <vector>

#include "binding.h"

namespace fusescope {

struct __attribute__((visibility("hidden"))) Heads {  // torch's stable Tensor is hidden too
  Tensor tensor;                                      // owns the storage
  int64_t outer, inner;                               // heads = outer x inner; inner is the last leading dimension
  int64_t outer_step, inner_step;                     // in elements
  int64_t row_step;                                   // between rows of an item of two dimensions; else 0
};

// A tensor of `item` dimensions (1, 2 or 3) per head: the tensor itself if the last dimension is dense and all leading
// dimensions but the last have one common stride (so that projections of the layout (B, S, H, D) are not copied), else
// a contiguous copy.
inline Heads as_heads(const Tensor& t, int item) {
  const int64_t lead = t.dim() - item, last = t.dim() - 1;
  Heads h{t, 1, 1, 0, 0, item == 2 ? t.strides()[last - 1] : 0};
  bool even = t.sizes()[last] <= 1 || t.strides()[last] == 1;
  int64_t size_of_item = t.sizes()[last];
  for (int64_t i = last - 1; i >= lead; --i) {  // an item of three dimensions is dense as a whole, one of two by rows
    if (item == 3 && t.sizes()[i] != 1) even = even && t.strides()[i] == size_of_item;
    size_of_item *= t.sizes()[i];
  }
  if (lead > 0) h.inner = t.sizes()[lead - 1], h.inner_step = t.strides()[lead - 1];
  for (int64_t i = lead - 2; i >= 0; --i) {
    const int64_t size = t.sizes()[i], stride = t.strides()[i];
    if (size != 1 && h.outer == 1)
      h.outer_step = stride;
    else if (size != 1)
      even = even && stride == h.outer * h.outer_step;
    h.outer *= size;
  }
  if (even) return h;
  Tensor dense = torch::stable::contiguous(t);
  return {dense, h.outer, h.inner, h.inner * size_of_item, size_of_item, item == 2 ? t.sizes()[last] : 0};
}

// An index list of a structure: int32, dense, on the device of the operands.
inline const int32_t* index_list(const Tensor& list, const char* name, int64_t length, const Tensor& on) {
  STD_TORCH_CHECK(list.scalar_type() == torch::headeronly::ScalarType::Int && list.is_contiguous() && list.dim() == 1 &&
                      list.get_device_index() == on.get_device_index(),
                  name, " is a dense list of int32 on the device of the operands");
  STD_TORCH_CHECK(list.numel() == length, name, " has ", list.numel(), " entries, this call needs ", length);
  return static_cast<const int32_t*>(list.const_data_ptr());
}

inline void check_block(int64_t block) {
  STD_TORCH_CHECK(block == 0 || block == 16 || block == 32 || block == 64, "block is 0 (CSR), 16, 32 or 64 (BSR), not ",
                  block);
}

// The leading dimensions of a tensor, which must be those of another.
inline std::vector<int64_t> same_heads(const Tensor& a, int item_a, const Tensor& b, int item_b, const char* names) {
  std::vector<int64_t> shape(a.sizes().begin(), a.sizes().end() - item_a);
  bool same = int64_t(shape.size()) == b.dim() - item_b;
  for (size_t i = 0; same && i < shape.size(); ++i) same = shape[i] == b.sizes()[i];
  STD_TORCH_CHECK(same, names, " have the same leading dimensions");
  return shape;
}

}  // namespace fusescope
