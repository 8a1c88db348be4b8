// Rotary positions and the write into the KV cache for torch: fusescope::rope_cache(Tensor q, Tensor k, Tensor v,
// Tensor? cos_sin, Tensor positions, Tensor? places, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor? block_table,
// str impl, Tensor? k_scale, Tensor? v_scale) -> Tensor, q turned; without cos_sin it has no elements. The scales are
// of caches of float8_e4m3fn.
//
// Nothing waits for positions, places and block_table: they are read where they lie, by the kernel.
#include <optional>

#include "../common/binding.h"
#include "rope_cache.cuh"

namespace {
using namespace fusescope;
using torch::headeronly::ScalarType;

void on_device_of(const Tensor& t, const char* name, const Tensor& q) {
  STD_TORCH_CHECK(t.get_device_index() == q.get_device_index(), name, " is on the device of q");
}

// (B, S, heads, D) with heads of contiguous elements: the tensor itself, or a copy that `owned` keeps.
RopeOperand operand(const Tensor& t, const char* name, const Tensor& q, Tensor& owned) {
  STD_TORCH_CHECK(t.dim() == 4 && t.sizes()[0] == q.sizes()[0] && t.sizes()[1] == q.sizes()[1] &&
                      t.sizes()[3] == q.sizes()[3] && t.scalar_type() == q.scalar_type(),
                  name, " is (B, S, heads, D) of q's batch, tokens, head size and dtype");
  on_device_of(t, name, q);
  owned = t.sizes()[3] == 1 || t.strides()[3] == 1 ? t : torch::stable::contiguous(t);
  return {owned.const_data_ptr(), owned.strides()[0], owned.strides()[1], owned.strides()[2]};
}

TokenNumbers numbers(const Tensor& t, const char* name, const Tensor& q) {
  const bool each = t.dim() == 2 && t.sizes()[0] == q.sizes()[0] && t.sizes()[1] == q.sizes()[1];
  STD_TORCH_CHECK((each || (t.dim() == 1 && t.sizes()[0] == q.sizes()[0])) &&
                      (t.scalar_type() == ScalarType::Long || t.scalar_type() == ScalarType::Int),
                  name, " is int32 or int64, (B, S), or (B,) for the first token of each sequence");
  on_device_of(t, name, q);
  return {t.const_data_ptr(), t.strides()[0], each ? t.strides()[1] : 0, each ? 0 : 1,
          t.scalar_type() == ScalarType::Long ? 1 : 0};
}

RopeCacheStrides cache(const Tensor& t, const char* name, const Tensor& k, const Tensor& like, ScalarType dtype) {
  STD_TORCH_CHECK(
      t.dim() == 4 && t.sizes()[1] == k.sizes()[2] && t.sizes()[3] == k.sizes()[3] && t.sizes()[0] == like.sizes()[0] &&
          t.sizes()[2] == like.sizes()[2] && t.scalar_type() == dtype && (t.sizes()[3] == 1 || t.strides()[3] == 1),
      name,
      " is (B or pages, H_kv, places, D) of k's heads, head size and dtype, or float8_e4m3fn with scales, D dense");
  on_device_of(t, name, k);
  return {t.strides()[0], t.strides()[1], t.strides()[2]};
}

const float* scale_of(const std::optional<Tensor>& t, const char* name, const Tensor& k) {
  STD_TORCH_CHECK(t && t->dim() == 1 && t->sizes()[0] == k.sizes()[2] && t->scalar_type() == ScalarType::Float &&
                      t->is_contiguous(),
                  name, " of float8_e4m3fn caches is dense float32, one of each head of k");
  on_device_of(*t, name, k);
  return static_cast<const float*>(t->const_data_ptr());
}

Tensor rope_cache(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& cos_sin,
                  const Tensor& positions, const std::optional<Tensor>& places, Tensor k_cache, Tensor v_cache,
                  const std::optional<Tensor>& block_table, const std::string& impl,
                  const std::optional<Tensor>& k_scale, const std::optional<Tensor>& v_scale) {
  STD_TORCH_CHECK(q.dim() == 4, "q is (B, S, H, D)");
  RopeCacheCall call{};
  RopeCacheArgs& args = call.args;
  Tensor owned[3];
  args.q = operand(q, "q", q, owned[0]);
  args.k = operand(k, "k", q, owned[1]);
  args.v = operand(v, "v", q, owned[2]);
  STD_TORCH_CHECK(k.sizes()[2] == v.sizes()[2], "k and v have as many heads");
  args.batch = q.sizes()[0], args.tokens = q.sizes()[1];
  args.heads = int32_t(q.sizes()[2]), args.kv_heads = int32_t(k.sizes()[2]), args.head_dim = int32_t(q.sizes()[3]);
  args.positions = numbers(positions, "positions", q);
  args.places = places ? numbers(*places, "places", q) : args.positions;
  const ScalarType dtype = k_scale || v_scale ? ScalarType::Float8_e4m3fn : k.scalar_type();
  args.k_stride = cache(k_cache, "k_cache", k, k_cache, dtype);
  args.v_stride = cache(v_cache, "v_cache", k, k_cache, dtype);
  args.pages = k_cache.sizes()[0], args.page = k_cache.sizes()[2], args.table_columns = 1;
  if (block_table) {
    const Tensor& t = *block_table;
    STD_TORCH_CHECK(t.dim() == 2 && t.sizes()[0] == args.batch && t.scalar_type() == ScalarType::Int &&
                        (t.sizes()[1] == 1 || t.strides()[1] == 1),
                    "block_table is int32 (B, pages a sequence), its rows dense");
    on_device_of(t, "block_table", q);
    args.block_table = static_cast<const int32_t*>(t.const_data_ptr());
    args.table_row = t.strides()[0], args.table_columns = t.sizes()[1];
  } else {
    STD_TORCH_CHECK(args.pages == args.batch, "without a block_table the caches have q's batch");
  }
  if (cos_sin) {
    const Tensor& t = *cos_sin;
    const int64_t last = t.dim() - 1, R = t.sizes()[last];
    args.by_token = t.dim() == 3 ? 1 : 0;
    STD_TORCH_CHECK(t.scalar_type() == ScalarType::Float && t.is_contiguous() && R % 2 == 0 && R >= 2 &&
                        R <= args.head_dim &&
                        (t.dim() == 2 || (t.dim() == 3 && t.sizes()[0] == args.batch && t.sizes()[1] == args.tokens)),
                    "cos_sin is dense float32, (positions, R) or (B, S, R), R even and at most D");
    on_device_of(t, "cos_sin", q);
    args.cos_sin = static_cast<const float*>(t.const_data_ptr());
    args.cos_sin_rows = t.numel() / R, args.rotary = int32_t(R);
  }
  Tensor out = cos_sin ? torch::stable::new_empty(q, q.sizes()) : torch::stable::new_empty(q, {0});
  args.out = out.mutable_data_ptr();
  args.k_cache = k_cache.mutable_data_ptr(), args.v_cache = v_cache.mutable_data_ptr();
  args.dtype = dtype_of(q);
  if (dtype == ScalarType::Float8_e4m3fn) {
    call.scales = {scale_of(k_scale, "k_scale", k), scale_of(v_scale, "v_scale", k)};
    args.dtype |= kE4m3Cache;
  }
  if (q.numel() + k.numel() > 0) run("rope_cache", impl, call, q);
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def(
      "rope_cache(Tensor q, Tensor k, Tensor v, Tensor? cos_sin, Tensor positions, Tensor? places, Tensor(a!) k_cache, "
      "Tensor(b!) v_cache, Tensor? block_table, str impl, Tensor? k_scale=None, Tensor? v_scale=None) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("rope_cache", TORCH_BOX(&rope_cache)); }
