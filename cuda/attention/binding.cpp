// Attention for torch: fusescope::attention(q, k, v, bias?, row_ptr?, tile_index?, tile_code?, bitmaps?, ...) -> (B, H, S_q, D).
//
// The tensors of a plan come as they are (see attention.cuh); none of them = every key is live. Shapes are checked again here, and
// the plan's sizes against the list it needs, because the operator can be called without the Python function before it.
#include <optional>

#include "../common/binding.h"
#include "attention.cuh"

namespace {
using namespace fusescope;
using torch::headeronly::ScalarType;

void four_strides(const Tensor& t, int64_t (&to)[4], bool broadcast = false) {
  for (int i = 0; i < 4; ++i) to[i] = broadcast && t.size(i) == 1 ? 0 : t.stride(i);
}

const void* plan_pointer(const std::optional<Tensor>& t, ScalarType type, const char* name, const Tensor& q) {
  STD_TORCH_CHECK(t->scalar_type() == type && t->is_contiguous(), name, " is a contiguous tensor of the plan's own type");
  STD_TORCH_CHECK(t->get_device_index() == q.get_device_index(), name, " and q lie on one device");
  return t->const_data_ptr();
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, std::optional<Tensor> bias, std::optional<Tensor> row_ptr,
                 std::optional<Tensor> tile_index, std::optional<Tensor> tile_code, std::optional<Tensor> bitmaps,
                 int64_t mask_stride_b, int64_t mask_stride_h, double scale, std::string impl) {
  STD_TORCH_CHECK(q.dim() == 4 && k.dim() == 4 && v.dim() == 4, "q, k and v have four dimensions");
  const int64_t B = q.size(0), H = q.size(1), Sq = q.size(2), D = q.size(3), Hkv = k.size(1), Sk = k.size(2);
  for (const Tensor* t : {&k, &v})
    STD_TORCH_CHECK(t->size(0) == B && t->size(1) == Hkv && t->size(2) == Sk && t->size(3) == D && t->scalar_type() == q.scalar_type() &&
                        t->get_device_index() == q.get_device_index(),
                    "k and v are (B, H_kv, S_k, D) of q's batch, head_dim, dtype and device");
  STD_TORCH_CHECK(B > 0 && H > 0 && Hkv > 0 && Sq > 0 && Sk > 0 && H % Hkv == 0, "sizes are at least 1 and H is a multiple of H_kv");
  STD_TORCH_CHECK(D % 8 == 0 && D >= 32 && D <= 256, "unsupported: head_dim ", D, " (a multiple of 8 from 32 to 256 is)");
  STD_TORCH_CHECK(Sq < (int64_t(1) << 30) && Sk < (int64_t(1) << 30), "unsupported: a sequence of 2^30 or more");

  Tensor out = torch::stable::new_empty(q, {B, H, Sq, D});
  AttentionArgs args{};
  args.q = q.const_data_ptr();
  args.k = k.const_data_ptr();
  args.v = v.const_data_ptr();
  args.out = out.mutable_data_ptr();
  four_strides(q, args.q_stride);
  four_strides(k, args.k_stride);
  four_strides(v, args.v_stride);
  args.dtype = dtype_of(q);
  if (bias) {
    STD_TORCH_CHECK(bias->dim() == 4 && bias->get_device_index() == q.get_device_index(), "bias has four dimensions and lies on q's device");
    const int64_t full[4] = {B, H, Sq, Sk};
    for (int i = 0; i < 4; ++i) STD_TORCH_CHECK(bias->size(i) == 1 || bias->size(i) == full[i], "bias is broadcastable to (B, H, S_q, S_k)");
    args.bias = bias->const_data_ptr();
    args.bias_dtype = dtype_of(*bias);
    STD_TORCH_CHECK(args.bias_dtype == FS_FLOAT32 || args.bias_dtype == args.dtype, "bias is of float32 or of q's dtype");
    four_strides(*bias, args.bias_stride, true);
  }
  if (row_ptr) {
    STD_TORCH_CHECK(tile_index && tile_code && bitmaps, "a plan is row_ptr, tile_index, tile_code and bitmaps together");
    const int64_t q_tiles = (Sq + ATTENTION_TILE - 1) / ATTENTION_TILE;
    STD_TORCH_CHECK(mask_stride_b >= 0 && mask_stride_h >= 0, "mask strides are not negative");
    const int64_t masks = (B - 1) * mask_stride_b + (H - 1) * mask_stride_h + 1;
    STD_TORCH_CHECK(row_ptr->numel() >= masks * q_tiles + 1, "the plan is for other sizes: row_ptr has ", row_ptr->numel(),
                    " entries, this call needs ", masks * q_tiles + 1);
    args.row_ptr = static_cast<const int32_t*>(plan_pointer(row_ptr, ScalarType::Int, "row_ptr", q));
    args.tile_index = static_cast<const int32_t*>(plan_pointer(tile_index, ScalarType::Int, "tile_index", q));
    args.tile_code = static_cast<const int32_t*>(plan_pointer(tile_code, ScalarType::Int, "tile_code", q));
    args.bitmaps = static_cast<const uint64_t*>(plan_pointer(bitmaps, ScalarType::Long, "bitmaps", q));
    args.mask_stride_b = int32_t(mask_stride_b);
    args.mask_stride_h = int32_t(mask_stride_h);
  }
  args.batch = int32_t(B);
  args.heads = int32_t(H);
  args.heads_kv = int32_t(Hkv);
  args.seq_q = int32_t(Sq);
  args.seq_k = int32_t(Sk);
  args.head_dim = int32_t(D);
  args.scale = float(scale);
  run("attention", impl, args, q);
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def(
      "attention(Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? row_ptr, Tensor? tile_index, Tensor? tile_code, "
      "Tensor? bitmaps, int mask_stride_b, int mask_stride_h, float scale, str impl) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("attention", TORCH_BOX(&attention)); }
