// Decode for torch: fusescope::attention_decode(q, k_cache, v_cache, lengths, scale?, impl) -> (B, H, 1, D).
//
// attention_decode_general is the same with up to 8 query tokens and what general.h says, an operator of its own so
// that other calls pay nothing for it: (..., impl, block_table?, window, softcap?, sinks?, k_scale?, v_scale?,
// alibi_slopes?, bias?) -> (B, H, T, D).
//
// attention_decode_step(q, k, v, cos_sin?, positions, places?, k_cache, v_cache, block_table?, lengths, scale?,
// settled, impl) -> (B, 1, H, D), of q (B, 1, H, D) and the new k and v (B, 1, H_kv, D), also writes those to the
// caches, as rope_cache does.
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

bool on_device_of(const Handle& t, const Handle& q) {
  return t.device_type() == q.device_type() && t.device_index() == q.device_index();
}

// Sinks, or the slopes of ALiBi; nullptr where there are none.
const float* of_heads(const Handle& t, const char* name, const Handle& q, int64_t heads) {
  if (!t) return nullptr;
  STD_TORCH_CHECK(t.dtype() == aoti_torch_dtype_float32() && t.dim() == 1 && t.contiguous() && t.numel() == heads &&
                      on_device_of(t, q),
                  name, " are float32, one of each query head, contiguous, on q's device");
  return static_cast<const float*>(t.data());
}

// full: (B, H, T, S_max).
void add_bias(AttentionDecodeBias& added, const Handle& bias, const Handle& q, const int64_t (&full)[4]) {
  const int64_t dim = bias.dim(), *size = bias.sizes(), *stride = bias.strides();
  STD_TORCH_CHECK(dim <= 4 && on_device_of(bias, q), "bias has up to four dimensions and lies on q's device");
  for (int64_t i = 0, to = 4 - dim; i < dim; ++i, ++to) {
    STD_TORCH_CHECK(size[i] == 1 || size[i] == full[to], "bias is broadcastable to (B, H, T, S_max)");
    added.stride[to] = size[i] == 1 ? 0 : stride[i];
  }
  added.bias = bias.data();
  added.dtype = dtype_of(bias);
  STD_TORCH_CHECK(added.dtype == FS_FLOAT32 || added.dtype == dtype_of(q), "bias is of float32 or of q's dtype");
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
}

// The new token's k or v: (B, 1, H_kv, D), the elements of a head side by side.
void add_row(const void*& data, int64_t (&stride)[2], const Handle& t, const Handle& q, int64_t heads_kv) {
  STD_TORCH_CHECK(t.dim() == 4 && t.sizes()[0] == q.sizes()[0] && t.sizes()[1] == 1 && t.sizes()[2] == heads_kv &&
                      t.sizes()[3] == q.sizes()[3] && t.strides()[3] == 1 && t.dtype() == q.dtype() &&
                      on_device_of(t, q),
                  "k and v are (B, 1, H_kv, D) of q's batch, head_dim, dtype and device, the elements of a head side "
                  "by side");
  data = t.data();
  stride[0] = t.strides()[0];
  stride[1] = t.strides()[2];
}

SequenceNumber number(const Handle& t, const char* name, const Handle& q) {
  const bool wide = t.dtype() == aoti_torch_dtype_int64();
  STD_TORCH_CHECK((wide || t.dtype() == aoti_torch_dtype_int32()) && (t.dim() == 1 || t.dim() == 2) &&
                      t.numel() == q.sizes()[0] && t.sizes()[0] == q.sizes()[0] && on_device_of(t, q),
                  name, " is int32 or int64, (B,) or (B, 1), on q's device");
  return {t.data(), t.strides()[0], wide};
}

void add_angles(AttentionDecodeNew& added, const Handle& t, const Handle& q) {
  const int64_t rank = t.dim(), R = rank ? t.sizes()[rank - 1] : 0, B = q.sizes()[0];
  STD_TORCH_CHECK(t.dtype() == aoti_torch_dtype_float32() && t.contiguous() && R % 2 == 0 && R >= 2 &&
                      R <= q.sizes()[3] && on_device_of(t, q) &&
                      (rank == 2 || (rank == 3 && t.sizes()[0] == B && t.sizes()[1] == 1)),
                  "cos_sin is dense float32, (positions, R) or (B, 1, R), R even and at most D, on q's device");
  added.cos_sin = static_cast<const float*>(t.data());
  added.cos_sin_rows = t.numel() / R;
  added.rotary = int32_t(R);
  added.by_token = rank == 3;
}

// Sizes and strides of q by their meaning.
struct Query {
  int64_t batch, heads, tokens, head_dim, batch_step, head_step, token_step, column_step;
};

// Checks what all three operators are given, has add(call, S_max) check and add the rest, and runs the kernel into
// `out`. plain: every kernel takes such a call; else `further` says what this kernel may not take. fp8: whether the
// cache may be of float8_e4m3fn.
template <typename Add> void decode(const Handle& q, const Query& s, const Handle& k_cache, const Handle& v_cache,
                                    const Handle& lengths, const std::optional<double>& scale, const Text& impl,
                                    const Handle& block_table, bool plain, bool fp8, const char* further, Handle& out,
                                    Add add) {
  const int64_t *k_size = k_cache.sizes(), B = s.batch, H = s.heads, D = s.head_dim, Hkv = k_size[1];
  const int64_t pages = k_size[0], page = k_size[2];
  const bool e4m3 = fp8 && k_cache.dtype() == aoti_torch_dtype_float8_e4m3fn();
  const int32_t cache_dtype = e4m3 ? aoti_torch_dtype_float8_e4m3fn() : q.dtype();
  for (const Handle* t : {&k_cache, &v_cache}) {
    const int64_t* size = t->sizes();
    STD_TORCH_CHECK((size[0] == B || block_table) && size[0] == pages && size[1] == Hkv && size[2] == page &&
                        size[3] == D && t->dtype() == cache_dtype && t->device_type() == q.device_type() &&
                        t->device_index() == q.device_index(),
                    "the caches are (B, H_kv, S_max, D) of q's batch, head_dim, dtype and device, or with a block "
                    "table (pages, H_kv, page, D)");
  }
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
  args.dtype = dtype_of(q) | (e4m3 ? kE4m3Cache : 0);
  args.q = q.data();
  args.k = k_cache.data();
  args.v = v_cache.data();
  args.lengths = static_cast<const int32_t*>(lengths.data());
  args.out = out.mutable_data();
  args.workspace_floats = &floats;
  args.q_stride[0] = s.batch_step;
  args.q_stride[1] = s.head_step;
  args.q_stride[2] = s.column_step;
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
  general.tokens = int32_t(s.tokens);
  general.q_token = s.token_step;
  bool taken = plain;
  if (!plain) {
    STD_TORCH_CHECK(impl.view().substr(0, 4) != "auto", "this operator takes the name of a kernel, not auto");
    call.taken = &taken;
  }
  add(call, S);
  auto sign = [&](CallSignature& signature) {
    signature.add(q);
    signature.add(k_cache);
    signature.add(v_cache);
  };
  run("attention_decode", impl.view(), call, q, sign);
  STD_TORCH_CHECK(taken, "unsupported: ", further);
  if (floats > 0) {  // it has only said how much scratch it needs
    const Handle workspace = empty(q, aoti_torch_dtype_float32(), {floats});
    args.workspace = static_cast<float*>(workspace.mutable_data());
    run("attention_decode", impl.view(), call, q, sign);
  }
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
  const Handle slopes = General ? last.optional_tensor() : Handle();
  const Handle bias = General ? last.optional_tensor() : Handle();

  STD_TORCH_CHECK(q.dim() == 4 && k_cache.dim() == 4 && v_cache.dim() == 4, "q and the caches have four dimensions");
  const int64_t *size = q.sizes(), *stride = q.strides(), T = size[2];
  STD_TORCH_CHECK(General || T == 1, "q is (B, H, 1, D): one new query a sequence, not ", T);
  STD_TORCH_CHECK(T >= 1 && T <= 8, "unsupported: ", T, " new queries a sequence (1 to 8 are)");
  const Query query{size[0], size[1], T, size[3], stride[0], stride[1], stride[2], stride[3]};
  Handle out = empty_like(q, {size[0], size[1], T, size[3]});
  const auto add = [&](AttentionDecodeCall& call, int64_t S) {
    if constexpr (!General) return;
    AttentionDecodeGeneral& general = call.general;
    const bool e4m3 = call.args.dtype & kE4m3Cache;
    STD_TORCH_CHECK(e4m3 || (!k_scale && !v_scale), "k_scale and v_scale belong to a cache of float8_e4m3fn");
    STD_TORCH_CHECK(window >= 0, "window is a number of keys, at least 1, or 0 for none");
    general.window = int32_t(window < S ? window : 0);  // as many keys as there may be are no limit
    general.softcap = float(softcap.value_or(0.));
    STD_TORCH_CHECK(general.softcap >= 0 && std::isfinite(general.softcap), "softcap is a finite number above 0");
    general.sinks = of_heads(sinks, "sinks", q, query.heads);
    call.bias.slopes = of_heads(slopes, "alibi_slopes", q, query.heads);
    if (bias) add_bias(call.bias, bias, q, {query.batch, query.heads, query.tokens, S});
    if (e4m3) add_scales(call, k_scale, v_scale, q, call.args.heads_kv);
  };
  decode(q, query, k_cache, v_cache, lengths, scale, impl, block_table, !General, General,
         "several query tokens, a block table, a window, softcap, sinks, alibi_slopes or a bias (the CPU kernel, "
         "v3_one_launch and v4_cluster take them)",
         out, add);
  give_back(stack, std::move(out));
}

void attention_decode_step(StableIValue* stack, uint64_t, uint64_t) {
  Arguments given(stack);
  const Handle q = given.tensor(), k = given.tensor(), v = given.tensor(), cos_sin = given.optional_tensor();
  const Handle positions = given.tensor(), places = given.optional_tensor();
  const Handle k_cache = given.tensor(), v_cache = given.tensor(), block_table = given.optional_tensor();
  const Handle lengths = given.tensor();
  const std::optional<double> scale = given.optional_number();
  const bool settled = given.truth();
  const Text impl = given.text();

  STD_TORCH_CHECK(q.dim() == 4 && k_cache.dim() == 4 && v_cache.dim() == 4, "q and the caches have four dimensions");
  const int64_t *size = q.sizes(), *stride = q.strides(), B = size[0], H = size[2], D = size[3];
  STD_TORCH_CHECK(size[1] == 1, "q is (B, 1, H, D): one new token a sequence, not ", size[1]);
  const Query query{B, H, 1, D, stride[0], stride[2], stride[1], stride[3]};
  Handle out = empty_like(q, {B, 1, H, D});
  const auto add = [&](AttentionDecodeCall& call, int64_t) {
    AttentionDecodeNew& added = call.added;
    add_row(added.k, added.k_stride, k, q, k_cache.sizes()[1]);
    add_row(added.v, added.v_stride, v, q, k_cache.sizes()[1]);
    STD_TORCH_CHECK(stride[3] == 1 && k_cache.strides()[3] == 1 && v_cache.strides()[3] == 1,
                    "the elements of a head of q and of a row of the caches lie side by side");
    added.k_cache = k_cache.mutable_data();
    added.v_cache = v_cache.mutable_data();
    added.position = number(positions, "positions", q);
    added.place = places ? number(places, "places", q) : added.position;
    if (cos_sin) add_angles(added, cos_sin, q);
    added.settled = settled;
  };
  decode(q, query, k_cache, v_cache, lengths, scale, impl, block_table, false, false,
         "the new token's key and value in the launch of attention (v4_cluster takes them)", out, add);
  give_back(stack, std::move(out));
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def("attention_decode(Tensor q, Tensor k_cache, Tensor v_cache, Tensor lengths, float? scale, str impl) -> Tensor");
  m.def(
      "attention_decode_general(Tensor q, Tensor k_cache, Tensor v_cache, Tensor lengths, float? scale, str impl, "
      "Tensor? block_table=None, int window=0, float? softcap=None, Tensor? sinks=None, Tensor? k_scale=None, Tensor? "
      "v_scale=None, Tensor? alibi_slopes=None, Tensor? bias=None) -> Tensor");
  m.def(
      "attention_decode_step(Tensor q, Tensor k, Tensor v, Tensor? cos_sin, Tensor positions, Tensor? places, "
      "Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor? block_table, Tensor lengths, float? scale, bool settled, str "
      "impl) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) {
  m.impl("attention_decode", &attention_decode<false>);
  m.impl("attention_decode_general", &attention_decode<true>);
  m.impl("attention_decode_step", &attention_decode_step);
}
