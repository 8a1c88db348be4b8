// Attention on e4m3 operands for torch:
//   fusescope::attention_fp8_quantise(q, k, v, rotate, impl) -> (q8, k8, v8, q_scale, k_scale, v_scale)
//   fusescope::attention_fp8(those six, seq_q, seq_k, bfloat16, causal, impl, plan?, layout, scale?) -> (B, H, S_q, D)
// float8_e4m3fn (B, heads, tiles, 64 D) and float32 as attention_fp8.cuh has them; plan and layout as of attention.
#include <cmath>

#include "../attention/plan.h"
#include "../common/handle.h"
#include "attention_fp8.cuh"

namespace {
using namespace fusescope;

constexpr int64_t kMostRows = int64_t(1) << 30;

int64_t tiles_of(int64_t rows) { return (rows + FP8_TILE - 1) / FP8_TILE; }

void check_sizes(int64_t batch, int64_t heads, int64_t heads_kv, int64_t seq_q, int64_t seq_k, int64_t head_dim) {
  STD_TORCH_CHECK(batch > 0 && heads > 0 && heads_kv > 0 && seq_q > 0 && seq_k > 0 && heads % heads_kv == 0,
                  "sizes are at least 1 and H is a multiple of H_kv");
  STD_TORCH_CHECK(head_dim == 64 || head_dim == 128, "unsupported: head_dim ", head_dim, " (64 and 128 are)");
  STD_TORCH_CHECK(seq_q < kMostRows && seq_k < kMostRows && batch * heads < kMostRows,
                  "unsupported: 2^30 rows or heads");
}

AttentionFp8Args with_sizes(int64_t batch, int64_t heads, int64_t heads_kv, int64_t seq_q, int64_t seq_k,
                            int64_t head_dim) {
  check_sizes(batch, heads, heads_kv, seq_q, seq_k, head_dim);
  AttentionFp8Args args{};
  args.batch = int32_t(batch);
  args.heads = int32_t(heads), args.heads_kv = int32_t(heads_kv);
  args.seq_q = int32_t(seq_q), args.seq_k = int32_t(seq_k);
  args.head_dim = int32_t(head_dim);
  return args;
}

void quantise(StableIValue* stack, uint64_t, uint64_t) {
  Arguments given(stack);
  const Handle q = given.tensor(), k = given.tensor(), v = given.tensor();
  const bool rotate = given.truth();
  const Text impl = given.text();
  STD_TORCH_CHECK(q.dim() == 4 && k.dim() == 4 && v.dim() == 4, "q, k and v have four dimensions");
  const int64_t *q_size = q.sizes(), *k_size = k.sizes(), *v_size = v.sizes();
  const int64_t B = q_size[0], H = q_size[1], Hkv = k_size[1], D = q_size[3];
  for (const Handle* t : {&k, &v})
    STD_TORCH_CHECK(
        t->dtype() == q.dtype() && t->device_type() == q.device_type() && t->device_index() == q.device_index(),
        "q, k and v are of one dtype and device");
  for (int i = 0; i < 4; ++i) STD_TORCH_CHECK(k_size[i] == v_size[i], "k and v have one shape");
  STD_TORCH_CHECK(k_size[0] == B && k_size[3] == D, "k and v are (B, H_kv, S_k, D) of q's batch and head_dim");
  AttentionFp8Args args = with_sizes(B, H, Hkv, q_size[2], k_size[2], D);
  args.dtype = dtype_of(q);
  STD_TORCH_CHECK(args.dtype != FS_FLOAT32, "unsupported: float32 (float16 and bfloat16 are quantised)");
  args.phase = FP8_QUANTISE, args.rotate = rotate;
  args.q = q.data(), args.k = k.data(), args.v = v.data();
  memcpy(args.q_stride, q.strides(), sizeof args.q_stride);
  memcpy(args.k_stride, k.strides(), sizeof args.k_stride);
  memcpy(args.v_stride, v.strides(), sizeof args.v_stride);
  const int64_t q_tiles = tiles_of(q_size[2]), k_tiles = tiles_of(k_size[2]);
  const int32_t e4m3 = aoti_torch_dtype_float8_e4m3fn(), fp32 = aoti_torch_dtype_float32();
  Handle results[6] = {empty(q, e4m3, {B, H, q_tiles, FP8_TILE * D}),
                       empty(q, e4m3, {B, Hkv, k_tiles, FP8_TILE * D}),
                       empty(q, e4m3, {B, Hkv, k_tiles, FP8_TILE * D}),
                       empty(q, fp32, {B, H, q_tiles}),
                       empty(q, fp32, {B, Hkv, k_tiles}),
                       empty(q, fp32, {B, Hkv, D})};
  const Handle maxima = empty(q, fp32, {B, Hkv, FP8_COLUMN_PARTS, D});
  uint8_t** const bytes[] = {&args.q8, &args.k8, &args.v8};
  float** const scales[] = {&args.q_scale, &args.k_scale, &args.v_scale};
  for (int i = 0; i < 3; ++i) {
    *bytes[i] = static_cast<uint8_t*>(results[i].mutable_data());
    *scales[i] = static_cast<float*>(results[3 + i].mutable_data());
  }
  args.column_maxima = static_cast<float*>(maxima.mutable_data());
  run("attention_fp8", impl.view(), args, q, [](CallSignature&) {});
  for (int i = 0; i < 6; ++i) give_back(stack + i, std::move(results[i]));
}

// The quantised operand's memory; throws where it is not contiguous, of this dtype and these sizes.
template <size_t Rank>
void* operand(const Handle& t, const char* name, int32_t dtype, const int64_t (&sizes)[Rank], const Handle& q8) {
  bool good = t.dtype() == dtype && t.dim() == int64_t(Rank) && t.contiguous() && t.device_type() == q8.device_type() &&
              t.device_index() == q8.device_index();
  for (size_t i = 0; good && i < Rank; ++i) good = t.sizes()[i] == sizes[i];
  STD_TORCH_CHECK(good, name, " is not as attention_fp8_quantise gives it for these sizes");
  void* const data = const_cast<void*>(t.data());
  STD_TORCH_CHECK(reinterpret_cast<uintptr_t>(data) % 16 == 0, "unsupported: ", name,
                  " does not begin at a multiple of 16 bytes");
  return data;
}

void attend(StableIValue* stack, uint64_t, uint64_t) {
  Arguments given(stack);
  const Handle q8 = given.tensor(), k8 = given.tensor(), v8 = given.tensor(), q_scale = given.tensor(),
               k_scale = given.tensor(), v_scale = given.tensor();
  const int64_t seq_q = torch::stable::detail::to<int64_t>(stack[6]),
                seq_k = torch::stable::detail::to<int64_t>(stack[7]);
  Arguments more(stack + 8);
  const bool bfloat16 = more.truth(), causal = more.truth();
  const Text impl = more.text();
  const Handle plan = more.optional_tensor();
  const Text layout = more.text();
  const std::optional<double> scale = more.optional_number();
  STD_TORCH_CHECK(q8.dim() == 4 && k8.dim() == 4, "q8 and k8 have four dimensions");
  const int64_t B = q8.sizes()[0], H = q8.sizes()[1], Hkv = k8.sizes()[1], row = q8.sizes()[3], D = row / FP8_TILE;
  STD_TORCH_CHECK(row % FP8_TILE == 0, "a tile of q8 has 64 rows");
  AttentionFp8Args args = with_sizes(B, H, Hkv, seq_q, seq_k, D);
  const int64_t q_tiles = tiles_of(seq_q), k_tiles = tiles_of(seq_k);
  const int32_t e4m3 = aoti_torch_dtype_float8_e4m3fn(), fp32 = aoti_torch_dtype_float32();
  args.q8 = static_cast<uint8_t*>(operand(q8, "q8", e4m3, {B, H, q_tiles, row}, q8));
  args.k8 = static_cast<uint8_t*>(operand(k8, "k8", e4m3, {B, Hkv, k_tiles, row}, q8));
  args.v8 = static_cast<uint8_t*>(operand(v8, "v8", e4m3, {B, Hkv, k_tiles, row}, q8));
  args.q_scale = static_cast<float*>(operand(q_scale, "q_scale", fp32, {B, H, q_tiles}, q8));
  args.k_scale = static_cast<float*>(operand(k_scale, "k_scale", fp32, {B, Hkv, k_tiles}, q8));
  args.v_scale = static_cast<float*>(operand(v_scale, "v_scale", fp32, {B, Hkv, D}, q8));
  args.phase = FP8_ATTEND, args.causal = causal, args.dtype = bfloat16 ? FS_BFLOAT16 : FS_FLOAT16;
  args.scale = float(scale ? *scale : 1 / std::sqrt(double(D)));
  STD_TORCH_CHECK(args.scale > 0 && args.scale < INFINITY, "unsupported: scale ", args.scale,
                  " (positive finite numbers are)");
  if (plan) {
    STD_TORCH_CHECK(!causal, "a plan or causal, not both");
    AttentionPartsArgs lists{};
    lists.args.batch = args.batch, lists.args.heads = args.heads;
    lists.args.seq_q = args.seq_q, lists.args.seq_k = args.seq_k;
    std::vector<AttentionPart> parts;
    unpack_plan(lists, parts, plan, layout.view(), q8);
    args.row_ptr = lists.args.row_ptr, args.tile_index = lists.args.tile_index;
    args.tile_code = lists.args.tile_code, args.bitmaps = lists.args.bitmaps;
    args.mask_stride_b = lists.args.mask_stride_b, args.mask_stride_h = lists.args.mask_stride_h;
  }
  const int32_t dtype = bfloat16 ? aoti_torch_dtype_bfloat16() : aoti_torch_dtype_float16();
  Handle out = empty(q8, dtype, {B, H, seq_q, D});
  const Handle next = empty(q8, aoti_torch_dtype_int64(), {2});
  args.next = static_cast<uint64_t*>(next.mutable_data());
  args.out = out.mutable_data();
  args.out_stride[0] = H * seq_q * D, args.out_stride[1] = seq_q * D, args.out_stride[2] = D;
  run("attention_fp8", impl.view(), args, q8, [](CallSignature&) {});
  give_back(stack, std::move(out));
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def(
      "attention_fp8_quantise(Tensor q, Tensor k, Tensor v, bool rotate, str impl) -> (Tensor, Tensor, Tensor, Tensor, "
      "Tensor, Tensor)");
  m.def(
      "attention_fp8(Tensor q8, Tensor k8, Tensor v8, Tensor q_scale, Tensor k_scale, Tensor v_scale, int seq_q, int "
      "seq_k, bool bfloat16, bool causal, str impl, Tensor? plan=None, str layout=\"\", float? scale=None) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) {
  m.impl("attention_fp8_quantise", &quantise);
  m.impl("attention_fp8", &attend);
}
