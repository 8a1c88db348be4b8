// Hopper, a mask in parts and work items: persistent blocks, warp specialisation, strided-permuted rows, split tile
// lists.
// archs: sm_90a
// expects: HGMMA UTMALDG UTMASTG
// takes: fp16 bf16, d<=128, scale>0, tma, softcap+sinks
// plan: parts
//
// One persistent block per multiprocessor. Each of its pairs of consumer warpgroups, fed by a producer warp, works
// through its own list of work items (hopper_consumer.cuh): two neighbouring query tiles, one each, and the KV tiles
// that are live for either.
//
// - A dilated mask is a sliding window within each residue class, a strided one a window plus, in strided-permuted
//   order (mod m), a triangle. TMA loads and stores 64 rows in that order as one box, so nothing is copied.
// - Where the tile lists of consecutive items overlap, the shared KV tiles stay in shared memory.
// - A second producer warp loads a bias by tiles, where TMA takes it (hopper_items_bias.cuh).
// - A list that would keep one pair busy after the others have finished is split; the splits leave fp32 partial
//   results, which the warps that come last join (hopper_partials.cuh).
// - A later part merges its rows by log-sum-exp with those in out, which TMA prefetches like queries and keys. Its
//   blocks start by programmatic dependent launch on multiprocessors that are free and load queries and keys
//   meanwhile.
//
// Splits and parts are merged in a fixed order, so results repeat bit for bit.
#include "hopper_items.cuh"

namespace {
template <typename T, typename Args>
const char* launch(const AttentionPartsArgs& all, const Args& args, cudaStream_t stream) {
  return args.head_dim <= 64 ? hopper::launch_items<T, 1, 2>(all, args, stream)
                             : hopper::launch_items<T, 2, 2>(all, args, stream);
}
template <typename T> const char* with_scores(const AttentionPartsArgs& all, cudaStream_t stream) {
  const AttentionScored scored = take_scored(all.args);
  if (all.args.bias) return launch<T>(all, hopper::with_bias(all.args, scored), stream);
  return scored.given() ? launch<T>(all, hopper::for_items(all.args, scored), stream)
                        : launch<T>(all, all.args, stream);
}
}  // namespace

FUSESCOPE_KERNEL(const AttentionArgs* args, void* stream) {
  if (args->head_dim > 128) return "unsupported: head_dim above 128 (v3_hopper takes it)";
  // The binding passes every kernel an AttentionPartsArgs, whose first member is AttentionArgs.
  const AttentionPartsArgs& all = *reinterpret_cast<const AttentionPartsArgs*>(args);
  if (const char* why = hopper::refuse(all, 2)) return why;
  const auto on = static_cast<cudaStream_t>(stream);
  return args->dtype == FS_FLOAT16 ? with_scores<__half>(all, on) : with_scores<__nv_bfloat16>(all, on);
}
