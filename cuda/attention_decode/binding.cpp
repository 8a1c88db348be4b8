// Decode for torch: fusescope::attention_decode(q, k_cache, v_cache, lengths, scale, impl) -> (B, H, 1, D).
//
// Nothing waits for the lengths: they are read where they lie, by the kernel. Scratch comes from torch's allocator, which keeps it
// valid inside CUDA graphs and between streams.
#include "../common/binding.h"
#include "attention_decode.cuh"

namespace {
using namespace fusescope;
using torch::headeronly::ScalarType;

void four_strides(const Tensor& t, int64_t (&to)[4]) {
  for (int i = 0; i < 4; ++i) to[i] = t.stride(i);
}

Tensor attention_decode(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache, const Tensor& lengths, double scale, std::string impl) {
  STD_TORCH_CHECK(q.dim() == 4 && k_cache.dim() == 4 && v_cache.dim() == 4, "q and the caches have four dimensions");
  const int64_t B = q.size(0), H = q.size(1), D = q.size(3), Hkv = k_cache.size(1), S = k_cache.size(2);
  STD_TORCH_CHECK(q.size(2) == 1, "q is (B, H, 1, D): one new query a sequence, not ", q.size(2));
  for (const Tensor* t : {&k_cache, &v_cache})
    STD_TORCH_CHECK(t->size(0) == B && t->size(1) == Hkv && t->size(2) == S && t->size(3) == D && t->scalar_type() == q.scalar_type() &&
                        t->get_device_index() == q.get_device_index(),
                    "the caches are (B, H_kv, S_max, D) of q's batch, head_dim, dtype and device");
  STD_TORCH_CHECK(B > 0 && H > 0 && Hkv > 0 && S > 0 && H % Hkv == 0, "sizes are at least 1 and H is a multiple of H_kv");
  STD_TORCH_CHECK(D % 8 == 0 && D >= 32 && D <= 256, "unsupported: head_dim ", D, " (a multiple of 8 from 32 to 256 is)");
  STD_TORCH_CHECK(S < (int64_t(1) << 30) && B < (int64_t(1) << 24) && H < (int64_t(1) << 16), "unsupported: 2^30 keys, 2^24 sequences or 2^16 heads");
  STD_TORCH_CHECK(lengths.dim() == 1 && lengths.size(0) == B && lengths.scalar_type() == ScalarType::Int && lengths.is_contiguous() &&
                      lengths.get_device_index() == q.get_device_index(),
                  "lengths is a contiguous int32 tensor (B,) on q's device");

  Tensor out = torch::stable::new_empty(q, {B, H, 1, D});
  int64_t floats = 0;
  AttentionDecodeArgs args{};
  args.q = q.const_data_ptr();
  args.k = k_cache.const_data_ptr();
  args.v = v_cache.const_data_ptr();
  args.lengths = static_cast<const int32_t*>(lengths.const_data_ptr());
  args.out = out.mutable_data_ptr();
  args.workspace_floats = &floats;
  args.q_stride[0] = q.stride(0);
  args.q_stride[1] = q.stride(1);
  args.q_stride[2] = q.stride(3);
  four_strides(k_cache, args.k_stride);
  four_strides(v_cache, args.v_stride);
  args.batch = int32_t(B);
  args.heads = int32_t(H);
  args.heads_kv = int32_t(Hkv);
  args.seq_max = int32_t(S);
  args.head_dim = int32_t(D);
  args.scale = float(scale);
  args.dtype = dtype_of(q);
  run("attention_decode", impl, args, q);
  if (floats > 0) {  // it has only said how much scratch it needs
    Tensor workspace = torch::stable::new_empty(q, {floats}, ScalarType::Float);
    args.workspace = static_cast<float*>(workspace.mutable_data_ptr());
    run("attention_decode", impl, args, q);
  }
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def("attention_decode(Tensor q, Tensor k_cache, Tensor v_cache, Tensor lengths, float scale, str impl) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("attention_decode", TORCH_BOX(&attention_decode)); }
