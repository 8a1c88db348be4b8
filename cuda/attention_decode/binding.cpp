// Decode for torch: fusescope::attention_decode(q, k_cache, v_cache, lengths, scale?, impl) -> (B, H, 1, D).
//
// scale: 1/sqrt(D) where it is None. impl: run() of handle.h. Everything is checked here, because the operator is
// called without checks in Python before it.
//
// Nothing waits for the lengths: they are read where they lie, by the kernel. Scratch comes from torch's allocator,
// which keeps it valid inside CUDA graphs and between streams.
#include <cmath>

#include "../common/handle.h"
#include "attention_decode.cuh"

namespace {
using namespace fusescope;

void four_strides(const Handle& t, int64_t (&to)[4]) { memcpy(to, t.strides(), sizeof to); }

void attention_decode(StableIValue* stack, uint64_t, uint64_t) {
  Arguments given(stack);
  const Handle q = given.tensor(), k_cache = given.tensor(), v_cache = given.tensor(), lengths = given.tensor();
  const std::optional<double> scale = given.optional_number();
  const Text impl = given.text();

  STD_TORCH_CHECK(q.dim() == 4 && k_cache.dim() == 4 && v_cache.dim() == 4, "q and the caches have four dimensions");
  const int64_t *q_size = q.sizes(), *k_size = k_cache.sizes(), *q_stride = q.strides();
  const int64_t B = q_size[0], H = q_size[1], D = q_size[3], Hkv = k_size[1], S = k_size[2];
  STD_TORCH_CHECK(q_size[2] == 1, "q is (B, H, 1, D): one new query a sequence, not ", q_size[2]);
  for (const Handle* t : {&k_cache, &v_cache}) {
    const int64_t* size = t->sizes();
    STD_TORCH_CHECK(size[0] == B && size[1] == Hkv && size[2] == S && size[3] == D && t->dtype() == q.dtype() &&
                        t->device_type() == q.device_type() && t->device_index() == q.device_index(),
                    "the caches are (B, H_kv, S_max, D) of q's batch, head_dim, dtype and device");
  }
  STD_TORCH_CHECK(B > 0 && H > 0 && Hkv > 0 && S > 0 && H % Hkv == 0,
                  "sizes are at least 1 and H is a multiple of H_kv");
  STD_TORCH_CHECK(D % 8 == 0 && D >= 32 && D <= 256, "unsupported: head_dim ", D,
                  " (a multiple of 8 from 32 to 256 is)");
  STD_TORCH_CHECK(S < (int64_t(1) << 30) && B < (int64_t(1) << 24) && H < (int64_t(1) << 16),
                  "unsupported: 2^30 keys, 2^24 sequences or 2^16 heads");
  STD_TORCH_CHECK(lengths.dim() == 1 && lengths.numel() == B && lengths.dtype() == aoti_torch_dtype_int32() &&
                      lengths.contiguous() && lengths.device_type() == q.device_type() &&
                      lengths.device_index() == q.device_index(),
                  "lengths is a contiguous int32 tensor (B,) on q's device");

  int64_t floats = 0;
  AttentionDecodeArgs args{};
  args.dtype = dtype_of(q);
  Handle out = empty_like(q, {B, H, 1, D});
  args.q = q.data();
  args.k = k_cache.data();
  args.v = v_cache.data();
  args.lengths = static_cast<const int32_t*>(lengths.data());
  args.out = out.mutable_data();
  args.workspace_floats = &floats;
  args.q_stride[0] = q_stride[0];
  args.q_stride[1] = q_stride[1];
  args.q_stride[2] = q_stride[3];
  four_strides(k_cache, args.k_stride);
  four_strides(v_cache, args.v_stride);
  args.batch = int32_t(B);
  args.heads = int32_t(H);
  args.heads_kv = int32_t(Hkv);
  args.seq_max = int32_t(S);
  args.head_dim = int32_t(D);
  args.scale = float(scale ? *scale : 1 / std::sqrt(double(D)));
  auto sign = [&](CallSignature& signature) {
    signature.add(q);
    signature.add(k_cache);
    signature.add(v_cache);
  };
  run("attention_decode", impl.view(), args, q, sign);
  if (floats > 0) {  // it has only said how much scratch it needs
    const Handle workspace = empty(q, aoti_torch_dtype_float32(), {floats});
    args.workspace = static_cast<float*>(workspace.mutable_data());
    run("attention_decode", impl.view(), args, q, sign);
  }
  give_back(stack, std::move(out));
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def("attention_decode(Tensor q, Tensor k_cache, Tensor v_cache, Tensor lengths, float? scale, str impl) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("attention_decode", &attention_decode); }
