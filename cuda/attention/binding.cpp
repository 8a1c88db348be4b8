// Attention for torch: fusescope::attention(q, k, v, impl, plan?, layout, scale?, bias?, out_bshd) -> (B, H, S_q, D).
//
// Without a plan every key is live; plan.h says what plan and layout are. scale: 1/sqrt(D) where it is not given. bias:
// up to four dimensions, broadcastable to (B, H, S_q, S_k). out_bshd: the result lies in memory as (B, S_q, H, D).
// impl: run() of handle.h. Everything is checked here, because the operator is called without checks in Python before
// it. Arguments that most calls leave out come last: those cost next to nothing. attention_scored is the same with
// softcap and sinks (scored.h), attention_expressed with a score expression (expressed.h) and sinks: operators of their
// own so that they cost other calls nothing.
#include <cmath>

#include "../common/handle.h"
#include "expressed.h"
#include "plan.h"
#include "scored.h"

namespace {
using namespace fusescope;

void four_strides(const Handle& t, int64_t (&to)[4]) { memcpy(to, t.strides(), sizeof to); }

void add_bias(AttentionArgs& args, const Handle& bias, const Handle& q) {
  const int64_t full[4] = {args.batch, args.heads, args.seq_q, args.seq_k}, dim = bias.dim();
  const int64_t *size = bias.sizes(), *stride = bias.strides();
  STD_TORCH_CHECK(dim <= 4 && bias.device_type() == q.device_type() && bias.device_index() == q.device_index(),
                  "bias has up to four dimensions and lies on q's device");
  for (int64_t i = 0; i < dim; ++i) {
    const int64_t to = 4 - dim + i;
    STD_TORCH_CHECK(size[i] == 1 || size[i] == full[to], "bias is broadcastable to (B, H, S_q, S_k)");
    args.bias_stride[to] = size[i] == 1 ? 0 : stride[i];
  }
  args.bias = bias.data();
  args.bias_dtype = dtype_of(bias);
  STD_TORCH_CHECK(args.bias_dtype == FS_FLOAT32 || args.bias_dtype == args.dtype, "bias is of float32 or of q's dtype");
}

// sinks: float32 (H,).
template <typename Scored>
void add_scored(Scored& scored, std::optional<double> softcap, const Handle& sinks, const Handle& q, int64_t heads) {
  scored.softcap = float(softcap.value_or(0.));
  STD_TORCH_CHECK(scored.softcap >= 0 && std::isfinite(scored.softcap), "softcap is a finite number above 0");
  if (!sinks) return;
  STD_TORCH_CHECK(sinks.dtype() == aoti_torch_dtype_float32() && sinks.dim() == 1 && sinks.contiguous() &&
                      sinks.numel() == heads && sinks.device_type() == q.device_type() &&
                      sinks.device_index() == q.device_index(),
                  "sinks are float32, one of each query head, contiguous, on q's device");
  scored.sinks = static_cast<const float*>(sinks.data());
}

enum class Scores { plain, scored, expressed };

template <Scores Of> void attention(StableIValue* stack, uint64_t, uint64_t) {
  Arguments given(stack);
  const Handle q = given.tensor(), k = given.tensor(), v = given.tensor();
  const Text impl = given.text();
  const std::vector<Handle> tables = Of == Scores::expressed ? given.tensors() : std::vector<Handle>();
  const Handle plan = given.optional_tensor();
  const Text layout = given.text();
  const std::optional<double> scale = given.optional_number();
  const Handle bias = given.optional_tensor();
  const bool out_bshd = given.truth();
  const std::optional<double> softcap = Of == Scores::scored ? given.optional_number() : std::nullopt;
  const Handle sinks = Of == Scores::plain ? Handle() : given.optional_tensor();

  STD_TORCH_CHECK(q.dim() == 4 && k.dim() == 4 && v.dim() == 4, "q, k and v have four dimensions");
  const int64_t *q_size = q.sizes(), *k_size = k.sizes();
  const int64_t B = q_size[0], H = q_size[1], Sq = q_size[2], D = q_size[3], Hkv = k_size[1], Sk = k_size[2];
  const int32_t device = q.device_index(), dtype = q.dtype();
  for (const Handle* t : {&k, &v}) {
    const int64_t* size = t->sizes();
    STD_TORCH_CHECK(size[0] == B && size[1] == Hkv && size[2] == Sk && size[3] == D && t->dtype() == dtype &&
                        t->device_index() == device && t->device_type() == q.device_type(),
                    "k and v are (B, H_kv, S_k, D) of q's batch, head_dim, dtype and device");
  }
  STD_TORCH_CHECK(B > 0 && H > 0 && Hkv > 0 && Sq > 0 && Sk > 0 && H % Hkv == 0,
                  "sizes are at least 1 and H is a multiple of H_kv");
  STD_TORCH_CHECK(D % 8 == 0 && D >= 32 && D <= 256, "unsupported: head_dim ", D,
                  " (a multiple of 8 from 32 to 256 is)");
  STD_TORCH_CHECK(Sq < (int64_t(1) << 30) && Sk < (int64_t(1) << 30), "unsupported: a sequence of 2^30 or more");

  AttentionCallArgs call{};
  AttentionPartsArgs& all = call.all;
  AttentionArgs& args = all.args;  // what every kernel takes
  args.dtype = dtype_of(q);
  args.batch = int32_t(B);
  args.heads = int32_t(H);
  args.heads_kv = int32_t(Hkv);
  args.seq_q = int32_t(Sq);
  args.seq_k = int32_t(Sk);
  args.head_dim = int32_t(D);
  args.scale = float(scale ? *scale : 1 / std::sqrt(double(D)));
  args.q = q.data();
  args.k = k.data();
  args.v = v.data();
  four_strides(q, args.q_stride);
  four_strides(k, args.k_stride);
  four_strides(v, args.v_stride);
  std::vector<AttentionPart> parts;
  if (plan) unpack_plan(all, parts, plan, layout.view(), q);
  if (bias) add_bias(args, bias, q);
  const int64_t out_size[4] = {B, H, Sq, D};
  const int64_t out_stride[4] = {H * Sq * D, out_bshd ? D : Sq * D, out_bshd ? H * D : D, 1};
  Handle out = empty_strided(q, q.dtype(), out_size, out_stride);
  args.out = out.mutable_data();
  memcpy(args.out_stride, out_stride, sizeof args.out_stride);
  Handle workspace;
  if (!parts.empty()) {
    if (const int64_t floats = part_workspace(all)) workspace = empty(q, aoti_torch_dtype_float32(), {floats});
    all.workspace = workspace ? static_cast<float*>(workspace.mutable_data()) : nullptr;
  }
  auto sign = [&](CallSignature& signature) {
    signature.add(q);
    signature.add(k);
    signature.add(v);
    signature.add(plan ? int64_t(reinterpret_cast<uintptr_t>(plan.data())) : 0);
    signature.add(layout.view());
    signature.add(args.scale > 0);
    if (bias) signature.add(bias);
  };
  bool taken = Of == Scores::plain;
  if constexpr (Of != Scores::plain) {
    add_scored(call.scored, softcap, sinks, q, H);
    call.taken = &taken;
  }
  if constexpr (Of == Scores::expressed) {
    STD_TORCH_CHECK(parts.empty(), "unsupported: a score expression with work items");
    add_tables(call.tables, tables, q);
    run_expressed(impl.view(), call, q);
    return give_back(stack, std::move(out));
  }
  if constexpr (Of == Scores::scored)
    STD_TORCH_CHECK(impl.view().substr(0, 4) != "auto", "attention_scored takes the name of a kernel, not auto");
  run("attention", impl.view(), call, q, sign, parts.empty() ? "" : "parts");
  STD_TORCH_CHECK(
      taken,
      "unsupported: softcap or sinks (the CPU kernel, v1_rowwise, v2_blockwise, v2_blockwise_fp32 and v4_scheduled to "
      "v6_triples take them)");
  give_back(stack, std::move(out));
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def(
      "attention(Tensor q, Tensor k, Tensor v, str impl, Tensor? plan=None, str layout=\"\", float? scale=None, "
      "Tensor? bias=None, bool out_bshd=False) -> Tensor");
  m.def(
      "attention_scored(Tensor q, Tensor k, Tensor v, str impl, Tensor? plan=None, str layout=\"\", float? scale=None, "
      "Tensor? bias=None, bool out_bshd=False, float? softcap=None, Tensor? sinks=None) -> Tensor");
  m.def(
      "attention_expressed(Tensor q, Tensor k, Tensor v, str impl, Tensor[] tables, Tensor? plan=None, "
      "str layout=\"\", float? scale=None, Tensor? bias=None, bool out_bshd=False, Tensor? sinks=None) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) {
  m.impl("attention", &attention<Scores::plain>);
  m.impl("attention_scored", &attention<Scores::scored>);
  m.impl("attention_expressed", &attention<Scores::expressed>);
}
