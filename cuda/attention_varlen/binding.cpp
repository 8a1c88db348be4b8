// Packed attention for torch: fusescope::attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, causal, scale, impl) -> (T_q, H, D).
//
// Nothing waits for the lengths: the launch is sized by the number of rows and sequences, and blocks find their sequence themselves.
#include "../common/binding.h"
#include "attention_varlen.cuh"

namespace {
using namespace fusescope;
using torch::headeronly::ScalarType;

void three_strides(const Tensor& t, int64_t (&to)[3]) {
  for (int i = 0; i < 3; ++i) to[i] = t.stride(i);
}

const int32_t* offsets(const Tensor& cu, const char* name, const Tensor& q) {
  STD_TORCH_CHECK(cu.dim() == 1 && cu.size(0) >= 2 && cu.scalar_type() == ScalarType::Int && cu.is_contiguous() &&
                      cu.get_device_index() == q.get_device_index(),
                  name, " is a contiguous int32 tensor (batch + 1,) on q's device");
  return static_cast<const int32_t*>(cu.const_data_ptr());
}

Tensor attention_varlen(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k, bool causal,
                        double scale, std::string impl) {
  STD_TORCH_CHECK(q.dim() == 3 && k.dim() == 3 && v.dim() == 3, "q, k and v have three dimensions");
  const int64_t Tq = q.size(0), H = q.size(1), D = q.size(2), Tk = k.size(0), Hkv = k.size(1);
  for (const Tensor* t : {&k, &v})
    STD_TORCH_CHECK(t->size(0) == Tk && t->size(1) == Hkv && t->size(2) == D && t->scalar_type() == q.scalar_type() &&
                        t->get_device_index() == q.get_device_index(),
                    "k and v are (T_k, H_kv, D) of q's head_dim, dtype and device");
  STD_TORCH_CHECK(H > 0 && Hkv > 0 && H % Hkv == 0, "there is at least one head and H is a multiple of H_kv");
  STD_TORCH_CHECK(D % 8 == 0 && D >= 32 && D <= 256, "unsupported: head_dim ", D, " (a multiple of 8 from 32 to 256 is)");
  STD_TORCH_CHECK(Tq < (int64_t(1) << 30) && Tk < (int64_t(1) << 30) && H < (int64_t(1) << 16), "unsupported: 2^30 rows or 2^16 heads");

  AttentionVarlenArgs args{};
  args.cu_q = offsets(cu_seqlens_q, "cu_seqlens_q", q);
  args.cu_k = offsets(cu_seqlens_k, "cu_seqlens_k", q);
  STD_TORCH_CHECK(cu_seqlens_q.size(0) == cu_seqlens_k.size(0), "cu_seqlens_q and cu_seqlens_k have one length");
  STD_TORCH_CHECK(cu_seqlens_q.size(0) <= (int64_t(1) << 24), "unsupported: more than 2^24 sequences");
  Tensor out = torch::stable::new_empty(q, {Tq, H, D});
  if (Tq == 0) return out;
  args.q = q.const_data_ptr();
  args.k = k.const_data_ptr();
  args.v = v.const_data_ptr();
  args.out = out.mutable_data_ptr();
  three_strides(q, args.q_stride);
  three_strides(k, args.k_stride);
  three_strides(v, args.v_stride);
  args.batch = int32_t(cu_seqlens_q.size(0) - 1);
  args.heads = int32_t(H);
  args.heads_kv = int32_t(Hkv);
  args.total_q = int32_t(Tq);
  args.total_k = int32_t(Tk);
  args.head_dim = int32_t(D);
  args.causal = causal;
  args.scale = float(scale);
  args.dtype = dtype_of(q);
  run("attention_varlen", impl, args, q);
  return out;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def(
      "attention_varlen(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, bool causal, float scale, "
      "str impl) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("attention_varlen", TORCH_BOX(&attention_varlen)); }
