// Attention for torch: fusescope::attention(q, k, v, bias?, row_ptr?, tile_index?, tile_code?, bitmaps?, ..., impl, schedule?,
// fragments?, parts?, items?) -> (B, H, S_q, D).
//
// parts and items are those of parts.h, for v5_parts alone: parts is int64 (parts, 9) in host memory, an AttentionPart a row.
// The tensors of a plan come as they are (see attention.cuh); none of them = every key is live. Shapes are checked again here, and
// the plan's sizes against the list it needs, because the operator can be called without the Python function before it.
#include "../common/handle.h"
#include "attention.cuh"
#include "parts.h"

namespace {
using namespace fusescope;

void four_strides(const Handle& t, int64_t (&to)[4], bool broadcast = false) {
  const int64_t *size = t.sizes(), *stride = t.strides();
  for (int i = 0; i < 4; ++i) to[i] = broadcast && size[i] == 1 ? 0 : stride[i];
}

const void* plan_pointer(const Handle& t, int32_t type, const char* name, int32_t device) {
  STD_TORCH_CHECK(t.dtype() == type && t.contiguous(), name, " is a contiguous tensor of the plan's own type");
  STD_TORCH_CHECK(t.device_index() == device, name, " and q lie on one device");
  return t.data();
}

static_assert(sizeof(AttentionPart) == 9 * sizeof(int64_t));

// What v5_parts is given beside the rest, checked against the sizes in all.args.
void take_parts(AttentionPartsArgs& all, const Handle& parts, const Handle& items, const Handle& schedule, const Handle& fragments, int32_t device) {
  STD_TORCH_CHECK(items && schedule && fragments, "parts come with items, a schedule and fragments");
  STD_TORCH_CHECK(parts.device_type() == aoti_torch_device_type_cpu() && parts.dtype() == aoti_torch_dtype_int64() && parts.contiguous() &&
                      parts.dim() == 2 && parts.sizes()[1] == 9,
                  "parts is int64 (parts, 9) in host memory");
  STD_TORCH_CHECK(items.dim() == 2 && items.sizes()[1] == 8, "items is int32 (items, 8)");
  AttentionArgs& args = all.args;
  all.parts = static_cast<const AttentionPart*>(parts.data());
  all.part_count = parts.sizes()[0];
  all.items = static_cast<const int32_t*>(plan_pointer(items, aoti_torch_dtype_int32(), "items", device));
  args.schedule = static_cast<const int32_t*>(plan_pointer(schedule, aoti_torch_dtype_int32(), "schedule", device));
  args.fragments = static_cast<const uint32_t*>(plan_pointer(fragments, aoti_torch_dtype_int32(), "fragments", device));
  auto order = [](int64_t modulus, int64_t size) {
    return modulus == 1 || (modulus > 1 && size % modulus == 0 && (size / modulus % 64 == 0 || 64 % (size / modulus) == 0));
  };
  auto inside = [&](int64_t first, int64_t count) { return first >= 0 && count >= 0 && first + count <= items.sizes()[0]; };
  for (int64_t p = 0; p < all.part_count; ++p) {
    const AttentionPart& part = all.parts[p];
    STD_TORCH_CHECK(order(part.q_modulus, args.seq_q) && order(part.k_modulus, args.seq_k) && inside(part.items, part.item_count) &&
                        inside(part.joins, part.join_count) && part.long_count >= 0 && part.long_count <= part.item_count && part.slots >= 0,
                    "the parts are for other sizes");
  }
}

// Uninitialised floats on the device of like; no tensor where there are none.
Handle scratch(const Handle& like, int64_t floats) {
  if (!floats) return Handle();
  const int64_t step = 1;
  AtenTensorHandle made = nullptr;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(1, &floats, &step, aoti_torch_dtype_float32(), like.device_type(), like.device_index(), &made));
  return Handle(made);
}

void attention(StableIValue* stack, uint64_t, uint64_t) {
  Arguments given(stack);
  const Handle q = given.tensor(), k = given.tensor(), v = given.tensor(), bias = given.optional_tensor();
  const Handle row_ptr = given.optional_tensor(), tile_index = given.optional_tensor(), tile_code = given.optional_tensor();
  const Handle bitmaps = given.optional_tensor();
  const int64_t mask_stride_b = given.integer(), mask_stride_h = given.integer();
  const double scale = given.number();
  const std::string impl = given.text();
  const Handle schedule = given.optional_tensor(), fragments = given.optional_tensor();
  const Handle parts = given.optional_tensor(), items = given.optional_tensor();

  STD_TORCH_CHECK(q.dim() == 4 && k.dim() == 4 && v.dim() == 4, "q, k and v have four dimensions");
  const int64_t *q_size = q.sizes(), *k_size = k.sizes();
  const int64_t B = q_size[0], H = q_size[1], Sq = q_size[2], D = q_size[3], Hkv = k_size[1], Sk = k_size[2];
  const int32_t device = q.device_index(), dtype = q.dtype();
  for (const Handle* t : {&k, &v}) {
    const int64_t* size = t->sizes();
    STD_TORCH_CHECK(size[0] == B && size[1] == Hkv && size[2] == Sk && size[3] == D && t->dtype() == dtype && t->device_index() == device &&
                        t->device_type() == q.device_type(),
                    "k and v are (B, H_kv, S_k, D) of q's batch, head_dim, dtype and device");
  }
  STD_TORCH_CHECK(B > 0 && H > 0 && Hkv > 0 && Sq > 0 && Sk > 0 && H % Hkv == 0, "sizes are at least 1 and H is a multiple of H_kv");
  STD_TORCH_CHECK(D % 8 == 0 && D >= 32 && D <= 256, "unsupported: head_dim ", D, " (a multiple of 8 from 32 to 256 is)");
  STD_TORCH_CHECK(Sq < (int64_t(1) << 30) && Sk < (int64_t(1) << 30), "unsupported: a sequence of 2^30 or more");

  AttentionPartsArgs all{};
  AttentionArgs& args = all.args;
  args.dtype = dtype_of(q);
  args.q = q.data();
  args.k = k.data();
  args.v = v.data();
  four_strides(q, args.q_stride);
  four_strides(k, args.k_stride);
  four_strides(v, args.v_stride);
  if (bias) {
    STD_TORCH_CHECK(bias.dim() == 4 && bias.device_index() == device, "bias has four dimensions and lies on q's device");
    const int64_t full[4] = {B, H, Sq, Sk};
    const int64_t* size = bias.sizes();
    for (int i = 0; i < 4; ++i) STD_TORCH_CHECK(size[i] == 1 || size[i] == full[i], "bias is broadcastable to (B, H, S_q, S_k)");
    args.bias = bias.data();
    args.bias_dtype = dtype_of(bias);
    STD_TORCH_CHECK(args.bias_dtype == FS_FLOAT32 || args.bias_dtype == args.dtype, "bias is of float32 or of q's dtype");
    four_strides(bias, args.bias_stride, true);
  }
  if (row_ptr) {
    STD_TORCH_CHECK(tile_index && tile_code && bitmaps, "a plan is row_ptr, tile_index, tile_code and bitmaps together");
    const int64_t q_tiles = (Sq + ATTENTION_TILE - 1) / ATTENTION_TILE;
    STD_TORCH_CHECK(mask_stride_b >= 0 && mask_stride_h >= 0, "mask strides are not negative");
    const int64_t masks = (B - 1) * mask_stride_b + (H - 1) * mask_stride_h + 1;
    STD_TORCH_CHECK(row_ptr.numel() >= masks * q_tiles + 1, "the plan is for other sizes: row_ptr has ", row_ptr.numel(),
                    " entries, this call needs ", masks * q_tiles + 1);
    args.row_ptr = static_cast<const int32_t*>(plan_pointer(row_ptr, aoti_torch_dtype_int32(), "row_ptr", device));
    args.tile_index = static_cast<const int32_t*>(plan_pointer(tile_index, aoti_torch_dtype_int32(), "tile_index", device));
    args.tile_code = static_cast<const int32_t*>(plan_pointer(tile_code, aoti_torch_dtype_int32(), "tile_code", device));
    args.bitmaps = static_cast<const uint64_t*>(plan_pointer(bitmaps, aoti_torch_dtype_int64(), "bitmaps", device));
    args.mask_stride_b = int32_t(mask_stride_b);
    args.mask_stride_h = int32_t(mask_stride_h);
    if (schedule) {
      STD_TORCH_CHECK(fragments && schedule.dim() == 3 && schedule.sizes()[2] == 4, "a schedule is (lists, entries, 4) and comes with fragments");
      const int64_t pairs = (q_tiles + 1) / 2;
      STD_TORCH_CHECK(schedule.sizes()[0] >= masks * pairs, "the schedule is for other sizes: it has ", schedule.sizes()[0],
                      " lists, this call needs ", masks * pairs);
      args.schedule = static_cast<const int32_t*>(plan_pointer(schedule, aoti_torch_dtype_int32(), "schedule", device));
      args.fragments = static_cast<const uint32_t*>(plan_pointer(fragments, aoti_torch_dtype_int32(), "fragments", device));
      args.schedule_stride = int32_t(schedule.sizes()[1]);
    }
  }
  args.batch = int32_t(B);
  args.heads = int32_t(H);
  args.heads_kv = int32_t(Hkv);
  args.seq_q = int32_t(Sq);
  args.seq_k = int32_t(Sk);
  args.head_dim = int32_t(D);
  args.scale = float(scale);
  Handle out = empty_like(q, {B, H, Sq, D});
  args.out = out.mutable_data();
  for (int i = 0; i < 3; ++i) all.out_stride[i] = out.strides()[i];
  if (parts) {
    args.mask_stride_b = int32_t(mask_stride_b);
    args.mask_stride_h = int32_t(mask_stride_h);
    take_parts(all, parts, items, schedule, fragments, device);
  }
  const Handle workspace = scratch(q, parts ? part_workspace(all) : 0);
  all.workspace = workspace ? static_cast<float*>(workspace.mutable_data()) : nullptr;
  run("attention", impl, args, q);
  give_back(stack, std::move(out));
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def(
      "attention(Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? row_ptr, Tensor? tile_index, Tensor? tile_code, "
      "Tensor? bitmaps, int mask_stride_b, int mask_stride_h, float scale, str impl, Tensor? schedule=None, "
      "Tensor? fragments=None, Tensor? parts=None, Tensor? items=None) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("attention", &attention); }
