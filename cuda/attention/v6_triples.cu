// Hopper, groups of three query tiles: as v5_parts, with three consumer warpgroups that share KV tiles.
// archs: sm_90a
// expects: HGMMA UTMALDG UTMASTG
// takes: fp16 bf16, d<=128, no-bias, scale>0, tma, softcap+sinks
// plan: parts, 3 query tiles
//
// A KV tile that is loaded once, and waited for once, serves 192 rows: long lists that all rows share take less time.
// Where lists are short or differ among the rows, more of the steps are of one or two warpgroups alone, and there are
// fewer items to deal out; v5_parts is faster then, and up to 64 columns, where it has two pairs of warpgroups on a
// multiprocessor, wherever one round of groups does not fill the device. Results take the place of the item's queries,
// as do rows of earlier parts: above 64 columns there is no other room in shared memory.
#include "hopper_items.cuh"

namespace {
template <typename T, typename Args>
const char* launch(const AttentionPartsArgs& all, const Args& args, cudaStream_t stream) {
  return args.head_dim <= 64 ? hopper::launch_items<T, 1, 3>(all, args, stream)
                             : hopper::launch_items<T, 2, 3>(all, args, stream);
}
template <typename T> const char* with_scores(const AttentionPartsArgs& all, cudaStream_t stream) {
  const AttentionScored scored = take_scored(all.args);
  return scored.given() ? launch<T>(all, hopper::for_items(all.args, scored), stream)
                        : launch<T>(all, all.args, stream);
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionArgs* args, void* stream) {
  if (args->head_dim > 128) return "unsupported: head_dim above 128 (v3_hopper takes it)";
  if (args->bias) return "unsupported: a bias (v5_parts takes it)";
  // The binding passes every kernel an AttentionPartsArgs, whose first member is AttentionArgs.
  const AttentionPartsArgs& all = *reinterpret_cast<const AttentionPartsArgs*>(args);
  if (const char* why = hopper::refuse(all, 3)) return why;
  const auto on = static_cast<cudaStream_t>(stream);
  return args->dtype == FS_FLOAT16 ? with_scores<__half>(all, on) : with_scores<__nv_bfloat16>(all, on);
}
