// Packed attention for torch: fusescope::attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, causal, scale?, impl,
// left, right) -> (T_q, H, D).
//
// scale: 1/sqrt(D) where it is None. impl: run() of handle.h. left, right: the window, -1 where it has no limit; causal
// makes right 0. Everything is checked here, because the operator is called without checks in Python before it.
//
// Nothing waits for the lengths: the launch is sized by the number of rows and sequences, and blocks find their
// sequence themselves.
#include <cmath>

#include "../common/handle.h"
#include "attention_varlen.cuh"

namespace {
using namespace fusescope;

void three_strides(const Handle& t, int64_t (&to)[3]) { memcpy(to, t.strides(), sizeof to); }

const int32_t* offsets(const Handle& cu, const char* name, const Handle& q) {
  STD_TORCH_CHECK(cu.dim() == 1 && cu.sizes()[0] >= 2 && cu.dtype() == aoti_torch_dtype_int32() && cu.contiguous() &&
                      cu.device_type() == q.device_type() && cu.device_index() == q.device_index(),
                  name, " is a contiguous int32 tensor (batch + 1,) on q's device");
  return static_cast<const int32_t*>(cu.data());
}

// A window that limits something; what is none, or no more than causal, kernels are not told.
void add_window(AttentionVarlenCall& call, int64_t left, int64_t right, bool& taken) {
  AttentionVarlenArgs& args = call.args;
  STD_TORCH_CHECK(left >= -1 && right >= -1, "left and right of a window are numbers of keys, or -1 for no limit; not ",
                  left, " and ", right);
  // As a query stands at one of its sequence's keys or before the first, so many are no limit.
  const bool left_limits = left >= 0 && left < int64_t(args.total_k) - 1;
  const bool right_limits = args.causal || (right >= 0 && right < int64_t(args.total_q) - 1);
  if (args.causal) right = 0;
  args.causal = !left_limits && right_limits && right == 0;
  if (args.causal || !(left_limits || right_limits)) return;
  call.left = left_limits ? int32_t(left) : args.total_k;
  call.right = right_limits ? int32_t(right) : args.total_q;
  call.taken = &taken;
}

void attention_varlen(StableIValue* stack, uint64_t, uint64_t) {
  Arguments given(stack);
  const Handle q = given.tensor(), k = given.tensor(), v = given.tensor(), cu_q = given.tensor(), cu_k = given.tensor();
  const bool causal = given.truth();
  const std::optional<double> scale = given.optional_number();
  const Text impl = given.text();
  const int64_t left = given.whole(), right = given.whole();

  STD_TORCH_CHECK(q.dim() == 3 && k.dim() == 3 && v.dim() == 3, "q, k and v have three dimensions");
  const int64_t *q_size = q.sizes(), *k_size = k.sizes();
  const int64_t Tq = q_size[0], H = q_size[1], D = q_size[2], Tk = k_size[0], Hkv = k_size[1];
  for (const Handle* t : {&k, &v}) {
    const int64_t* size = t->sizes();
    STD_TORCH_CHECK(size[0] == Tk && size[1] == Hkv && size[2] == D && t->dtype() == q.dtype() &&
                        t->device_type() == q.device_type() && t->device_index() == q.device_index(),
                    "k and v are (T_k, H_kv, D) of q's head_dim, dtype and device");
  }
  STD_TORCH_CHECK(H > 0 && Hkv > 0 && H % Hkv == 0, "there is at least one head and H is a multiple of H_kv");
  STD_TORCH_CHECK(D % 8 == 0 && D >= 32 && D <= 256, "unsupported: head_dim ", D,
                  " (a multiple of 8 from 32 to 256 is)");
  STD_TORCH_CHECK(Tq < (int64_t(1) << 30) && Tk < (int64_t(1) << 30) && H < (int64_t(1) << 16),
                  "unsupported: 2^30 rows or 2^16 heads");

  AttentionVarlenCall call{};
  AttentionVarlenArgs& args = call.args;
  args.cu_q = offsets(cu_q, "cu_seqlens_q", q);
  args.cu_k = offsets(cu_k, "cu_seqlens_k", q);
  const int64_t numbers = cu_q.sizes()[0];
  STD_TORCH_CHECK(numbers == cu_k.sizes()[0], "cu_seqlens_q and cu_seqlens_k have one length");
  STD_TORCH_CHECK(numbers <= (int64_t(1) << 24), "unsupported: more than 2^24 sequences");
  args.dtype = dtype_of(q);
  Handle out = empty_like(q, {Tq, H, D});
  if (Tq > 0) {
    const Handle next = empty(q, aoti_torch_dtype_int64(), {2});
    call.next = static_cast<uint64_t*>(next.mutable_data());
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    args.out = out.mutable_data();
    three_strides(q, args.q_stride);
    three_strides(k, args.k_stride);
    three_strides(v, args.v_stride);
    args.batch = int32_t(numbers - 1);
    args.heads = int32_t(H);
    args.heads_kv = int32_t(Hkv);
    args.total_q = int32_t(Tq);
    args.total_k = int32_t(Tk);
    args.head_dim = int32_t(D);
    args.causal = causal;
    args.scale = float(scale ? *scale : 1 / std::sqrt(double(D)));
    bool taken = false;
    add_window(call, left, right, taken);
    run("attention_varlen", impl.view(), call, q, [&](CallSignature& signature) {
      signature.add(q);
      signature.add(k);
      signature.add(v);
      signature.add(numbers);
      signature.add(args.scale > 0);
      signature.add(left >= 0 || right >= 0);
    });
    STD_TORCH_CHECK(taken || !call.taken, "unsupported: a window (this kernel takes none)");
  }
  give_back(stack, std::move(out));
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def(
      "attention_varlen(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, bool causal, float? "
      "scale, "
      "str impl, int left=-1, int right=-1) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("attention_varlen", &attention_varlen); }
