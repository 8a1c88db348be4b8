// A plan as an operator argument: all arrays in one int32 tensor, and their sizes in one string, because each argument
// costs every call: some 1600 instructions for a tensor, 2700 for a number, 7200 for a list of eight, 3000 for a string
// of any length (NOTES.md, "Launch path").
#pragma once
#include <charconv>
#include <string_view>
#include <vector>

#include "../common/handle.h"
#include "attention.cuh"
#include "parts.h"

namespace fusescope {

// Order of the numbers in the string (backend/fusescope/ops/attention/plan/buffer.py): the sizes that the plan is for,
// then the int32 words of each array, 0 if absent; then, for kernels on work items alone, the numbers of each part
// (parts.h). A new array goes before those of narrower entries.
struct PlanLayout {
  int64_t seq_q, seq_k, batch, heads;
  int64_t bitmaps, fragments, items, schedule, row_ptr, tile_index, tile_code;
};
constexpr size_t kLayoutNumbers = sizeof(PlanLayout) / sizeof(int64_t),
                 kPartNumbers = sizeof(AttentionPart) / sizeof(int64_t);

inline PlanLayout plan_layout(std::string_view text, std::vector<AttentionPart>& parts) {
  PlanLayout layout{};
  auto* numbers = reinterpret_cast<int64_t*>(&layout);
  size_t left = kLayoutNumbers;
  const char *at = text.data(), *const end = at + text.size();
  for (bool more = true; more; ++at) {
    if (left == 0) {
      numbers = reinterpret_cast<int64_t*>(&parts.emplace_back());
      left = kPartNumbers;
    }
    const auto read = std::from_chars(at, end, *numbers);
    at = read.ptr;
    more = at != end && *at == ' ';
    STD_TORCH_CHECK(
        read.ec == std::errc() && *numbers >= 0 && *numbers < (int64_t(1) << 48) && (more || (at == end && left == 1)),
        "a plan's layout is ", kLayoutNumbers, " numbers and ", kPartNumbers,
        " for each part, with a space between, not '", std::string(text), "'");
    ++numbers;
    --left;
  }
  return layout;
}

// Throws where parts exceed the buffer of work items or are for other sizes.
inline void check_parts(const std::vector<AttentionPart>& parts, const PlanLayout& n, int64_t heads) {
  auto order = [](int64_t modulus, int64_t size) {
    return modulus == 1 ||
           (modulus > 1 && size % modulus == 0 && (size / modulus % 64 == 0 || 64 % (size / modulus) == 0));
  };
  auto inside = [&](int64_t first, int64_t count) { return first + count <= n.items / 4; };
  STD_TORCH_CHECK(n.items > 0 && n.items % 4 == 0 && n.schedule % 4 == 0,
                  "parts come with items and a schedule of 4 words");
  for (const AttentionPart& part : parts)
    STD_TORCH_CHECK(order(part.q_modulus, n.seq_q) && order(part.k_modulus, n.seq_k) && part.rounds < (1 << 24) &&
                        part.workers < (1 << 20) && inside(part.items, part.rounds * part.workers) &&
                        inside(part.pieces, part.slots) && part.slots < (1 << 18) && part.heads == heads &&
                        part.tiles == parts[0].tiles && (part.tiles == 2 || part.tiles == 3),
                    "the parts are for other sizes");
}

// Fills parts and points `all`, whose sizes are set, to them and into the buffer. Throws where the plan is for other
// sizes or its layout is inconsistent.
inline void unpack_plan(AttentionPartsArgs& all, std::vector<AttentionPart>& parts, const Handle& buffer,
                        std::string_view text, const Handle& q) {
  AttentionArgs& args = all.args;
  const PlanLayout n = plan_layout(text, parts);
  STD_TORCH_CHECK(buffer.dtype() == aoti_torch_dtype_int32() && buffer.dim() == 1 && buffer.contiguous(),
                  "a plan is one row of int32");
  STD_TORCH_CHECK(buffer.device_type() == q.device_type() && buffer.device_index() == q.device_index(),
                  "plan and q lie on one device");
  STD_TORCH_CHECK(n.seq_q == args.seq_q && n.seq_k == args.seq_k && (n.batch == 1 || n.batch == args.batch) &&
                      (n.heads == 1 || n.heads == args.heads),
                  "the plan is for other sizes: ", n.seq_q, " queries and ", n.seq_k, " keys, ", n.batch,
                  " batch entries and ", n.heads, " heads");
  args.mask_stride_b = n.batch > 1 ? int32_t(n.heads) : 0;
  args.mask_stride_h = n.heads > 1 ? 1 : 0;
  const auto* at = static_cast<const int32_t*>(buffer.data());
  STD_TORCH_CHECK(reinterpret_cast<uintptr_t>(at) % 16 == 0,
                  "unsupported: a plan that does not begin at a multiple of 16 bytes");
  int64_t left = buffer.numel();
  auto next_array = [&](int64_t words) {
    const int32_t* const begin = words > 0 ? at : nullptr;
    left -= words;
    STD_TORCH_CHECK(left >= 0, "a plan that is shorter than its layout says");
    at += words;
    return begin;
  };
  args.bitmaps = reinterpret_cast<const uint64_t*>(next_array(n.bitmaps));
  args.fragments = reinterpret_cast<const uint32_t*>(next_array(n.fragments));
  all.items = next_array(n.items);
  args.schedule = next_array(n.schedule);
  args.row_ptr = next_array(n.row_ptr);
  args.tile_index = next_array(n.tile_index);
  args.tile_code = next_array(n.tile_code);
  const int64_t masks = n.batch * n.heads, q_tiles = (n.seq_q + ATTENTION_TILE - 1) / ATTENTION_TILE,
                lists = masks * ((q_tiles + 1) / 2);
  STD_TORCH_CHECK(n.row_ptr == 0 || n.row_ptr == masks * q_tiles + 1, "row_ptr of ", n.row_ptr,
                  " numbers, these sizes have ", masks * q_tiles + 1);
  STD_TORCH_CHECK(n.tile_index == n.tile_code && (n.tile_index == 0 || n.row_ptr > 0),
                  "a tile has an index and a code, and lists have ends");
  STD_TORCH_CHECK(n.bitmaps % (2 * ATTENTION_TILE) == 0 && n.fragments % (2 * ATTENTION_TILE) == 0,
                  "bitmaps and fragments are of 128 words");
  all.parts = parts.data();
  all.part_count = int64_t(parts.size());
  if (all.part_count) return check_parts(parts, n, int64_t(args.batch) * args.heads);
  STD_TORCH_CHECK(n.schedule % (4 * lists) == 0 && (n.schedule == 0 || n.fragments > 0),
                  "a schedule is (lists, entries, 4) and comes with fragments");
  args.schedule_stride = int32_t(n.schedule / (4 * lists));
}

}  // namespace fusescope
