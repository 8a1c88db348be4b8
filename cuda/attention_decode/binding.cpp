// Decode for torch: fusescope::attention_decode(q, k_cache, v_cache, lengths, scale?, impl) -> (B, H, 1, D).
//
// attention_decode_general is the same with up to 8 query tokens and what general.h says, an operator of its own so
// that other calls pay nothing for it: (..., impl, block_table?, window, softcap?, sinks?, k_scale?, v_scale?) ->
// (B, H, T, D).
//
// scale: 1/sqrt(D) where it is None. impl: run() of handle.h. Everything is checked here, because the operator is
// called without checks in Python before it.
//
// Nothing waits for the lengths: they are read where they lie, by the kernel. Scratch comes from torch's allocator,
// which keeps it valid inside CUDA graphs and between streams.
#include <cmath>

#include "../common/handle.h"
#include "general.h"

namespace {
using namespace fusescope;

void four_strides(const Handle& t, int64_t (&to)[4]) { memcpy(to, t.strides(), sizeof to); }

// block_table: int32 (B, columns), the columns side by side. Returns S_max.
int64_t add_block_table(AttentionDecodeGeneral& general, const Handle& table, const Handle& q, int64_t batch,
                        int64_t page) {
  STD_TORCH_CHECK(table.dtype() == aoti_torch_dtype_int32() && table.dim() == 2 && table.sizes()[0] == batch &&
                      table.sizes()[1] > 0 && table.strides()[1] == 1 && table.device_type() == q.device_type() &&
                      table.device_index() == q.device_index(),
                  "block_table is int32 (B, pages of a sequence), a row's elements side by side, on q's device");
  STD_TORCH_CHECK(page % 16 == 0 && page <= 256, "unsupported: pages of ", page,
                  " keys (a multiple of 16 from 16 to 256 is)");
  general.block_table = static_cast<const int32_t*>(table.data());
  general.table_row = table.strides()[0];
  return page * table.sizes()[1];
}

void add_sinks(AttentionDecodeGeneral& general, const Handle& sinks, const Handle& q, int64_t heads) {
  STD_TORCH_CHECK(sinks.dtype() == aoti_torch_dtype_float32() && sinks.dim() == 1 && sinks.contiguous() &&
                      sinks.numel() == heads && sinks.device_type() == q.device_type() &&
                      sinks.device_index() == q.device_index(),
                  "sinks are float32, one of each query head, contiguous, on q's device");
  general.sinks = static_cast<const float*>(sinks.data());
}

// Scales of an fp8 cache; neither belongs to a cache of q's dtype.
void add_scales(AttentionDecodeCall& call, const Handle& k_scale, const Handle& v_scale, const Handle& q,
                int64_t heads_kv) {
  const float* data[2];
  for (int i = 0; i < 2; ++i) {
    const Handle& scale = i ? v_scale : k_scale;
    STD_TORCH_CHECK(scale && scale.dtype() == aoti_torch_dtype_float32() && scale.dim() == 1 &&
                        scale.numel() == heads_kv && scale.contiguous() && scale.device_type() == q.device_type() &&
                        scale.device_index() == q.device_index(),
                    "k_scale and v_scale of a float8_e4m3fn cache are float32, one of each KV head, contiguous, on q's "
                    "device");
    data[i] = static_cast<const float*>(scale.data());
  }
  call.scales = {data[0], data[1]};
  call.args.dtype |= kE4m3Cache;
}

template <bool General> void attention_decode(StableIValue* stack, uint64_t, uint64_t) {
  Arguments given(stack);
  const Handle q = given.tensor(), k_cache = given.tensor(), v_cache = given.tensor(), lengths = given.tensor();
  const std::optional<double> scale = given.optional_number();
  const Text impl = given.text();
  const Handle block_table = General ? given.optional_tensor() : Handle();
  const int64_t window = General ? torch::stable::detail::to<int64_t>(stack[7]) : 0;
  Arguments last(stack + 8);
  const std::optional<double> softcap = General ? last.optional_number() : std::nullopt;
  const Handle sinks = General ? last.optional_tensor() : Handle();
  const Handle k_scale = General ? last.optional_tensor() : Handle();
  const Handle v_scale = General ? last.optional_tensor() : Handle();

  STD_TORCH_CHECK(q.dim() == 4 && k_cache.dim() == 4 && v_cache.dim() == 4, "q and the caches have four dimensions");
  const int64_t *q_size = q.sizes(), *k_size = k_cache.sizes(), *q_stride = q.strides();
  const int64_t B = q_size[0], H = q_size[1], T = q_size[2], D = q_size[3], Hkv = k_size[1];
  const int64_t pages = k_size[0], page = k_size[2];
  STD_TORCH_CHECK(General || T == 1, "q is (B, H, 1, D): one new query a sequence, not ", T);
  STD_TORCH_CHECK(T >= 1 && T <= 8, "unsupported: ", T, " new queries a sequence (1 to 8 are)");
  const bool e4m3 = General && k_cache.dtype() == aoti_torch_dtype_float8_e4m3fn();
  const int32_t cache_dtype = e4m3 ? aoti_torch_dtype_float8_e4m3fn() : q.dtype();
  for (const Handle* t : {&k_cache, &v_cache}) {
    const int64_t* size = t->sizes();
    STD_TORCH_CHECK((size[0] == B || block_table) && size[0] == pages && size[1] == Hkv && size[2] == page &&
                        size[3] == D && t->dtype() == cache_dtype && t->device_type() == q.device_type() &&
                        t->device_index() == q.device_index(),
                    "the caches are (B, H_kv, S_max, D) of q's batch, head_dim, dtype and device, or with a block "
                    "table (pages, H_kv, page, D)");
  }
  STD_TORCH_CHECK(e4m3 || (!k_scale && !v_scale), "k_scale and v_scale belong to a cache of float8_e4m3fn");
  AttentionDecodeCall call{};
  AttentionDecodeGeneral& general = call.general;
  const int64_t S = block_table ? add_block_table(general, block_table, q, B, page) : page;
  STD_TORCH_CHECK(B > 0 && H > 0 && Hkv > 0 && S > 0 && pages > 0 && H % Hkv == 0,
                  "sizes are at least 1 and H is a multiple of H_kv");
  STD_TORCH_CHECK(D % 8 == 0 && D >= 32 && D <= 256, "unsupported: head_dim ", D,
                  " (a multiple of 8 from 32 to 256 is)");
  STD_TORCH_CHECK(
      S < (int64_t(1) << 30) && pages < (int64_t(1) << 31) && B < (int64_t(1) << 24) && H < (int64_t(1) << 16),
      "unsupported: 2^30 keys, 2^31 pages, 2^24 sequences or 2^16 heads");
  STD_TORCH_CHECK(lengths.dim() == 1 && lengths.numel() == B && lengths.dtype() == aoti_torch_dtype_int32() &&
                      lengths.contiguous() && lengths.device_type() == q.device_type() &&
                      lengths.device_index() == q.device_index(),
                  "lengths is a contiguous int32 tensor (B,) on q's device");

  int64_t floats = 0;
  AttentionDecodeArgs& args = call.args;
  args.dtype = dtype_of(q);
  Handle out = empty_like(q, {B, H, T, D});
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
  general.pages = int32_t(pages);
  general.page = int32_t(page);
  general.tokens = int32_t(T);
  general.q_token = q_stride[2];
  bool taken = !General;
  if constexpr (General) {
    STD_TORCH_CHECK(impl.view().substr(0, 4) != "auto",
                    "attention_decode_general takes the name of a kernel, not auto");
    STD_TORCH_CHECK(window >= 0, "window is a number of keys, at least 1, or 0 for none");
    general.window = int32_t(window < S ? window : 0);  // as many keys as there may be are no limit
    general.softcap = float(softcap.value_or(0.));
    STD_TORCH_CHECK(general.softcap >= 0 && std::isfinite(general.softcap), "softcap is a finite number above 0");
    if (sinks) add_sinks(general, sinks, q, H);
    if (e4m3) add_scales(call, k_scale, v_scale, q, Hkv);
    call.taken = &taken;
  }
  auto sign = [&](CallSignature& signature) {
    signature.add(q);
    signature.add(k_cache);
    signature.add(v_cache);
  };
  run("attention_decode", impl.view(), call, q, sign);
  STD_TORCH_CHECK(taken,
                  "unsupported: several query tokens, a block table, a window, softcap or sinks (the CPU kernel, "
                  "v3_one_launch and v4_cluster take them)");
  if (floats > 0) {  // it has only said how much scratch it needs
    const Handle workspace = empty(q, aoti_torch_dtype_float32(), {floats});
    args.workspace = static_cast<float*>(workspace.mutable_data());
    run("attention_decode", impl.view(), call, q, sign);
  }
  give_back(stack, std::move(out));
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def("attention_decode(Tensor q, Tensor k_cache, Tensor v_cache, Tensor lengths, float? scale, str impl) -> Tensor");
  m.def(
      "attention_decode_general(Tensor q, Tensor k_cache, Tensor v_cache, Tensor lengths, float? scale, str impl, "
      "Tensor? block_table=None, int window=0, float? softcap=None, Tensor? sinks=None, Tensor? k_scale=None, Tensor? "
      "v_scale=None) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) {
  m.impl("attention_decode", &attention_decode<false>);
  m.impl("attention_decode_general", &attention_decode<true>);
}
