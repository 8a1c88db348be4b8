// A plan as the operator is given it: all arrays one behind the other in one int32 tensor, and a text of numbers that
// says where. A tensor more costs a call some 1600 instructions, a number 2700, a list of eight 7200, a text of any
// length 3000 (NOTES.md, "Launch path").
#pragma once
#include <charconv>
#include <string_view>
#include <vector>

#include "../common/handle.h"
#include "attention.cuh"
#include "parts.h"

namespace fusescope {

// In this order in the text (backend/fusescope/ops/attention/plan/buffer.py): what the plan is for, then the int32
// words of each array, 0 where the plan has none. Behind them, for v5_parts alone, the numbers of its parts (parts.h).
// Another array goes before those of narrower entries.
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

// Throws where parts reach beyond their items or are for other sizes.
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
                        part.teams < (1 << 20) && inside(part.items, part.rounds * part.teams) &&
                        inside(part.joins, part.join_count) && part.slots < (1 << 18) && part.heads == heads,
                    "the parts are for other sizes");
}

// Points all (whose sizes are set) into the buffer and to parts, which it fills; throws where the plan is for another
// call or does not hold what it says.
inline void take_plan(AttentionPartsArgs& all, std::vector<AttentionPart>& parts, const Handle& buffer,
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
  auto take = [&](int64_t words) {
    const int32_t* const begin = words > 0 ? at : nullptr;
    left -= words;
    STD_TORCH_CHECK(left >= 0, "a plan that is shorter than its layout says");
    at += words;
    return begin;
  };
  args.bitmaps = reinterpret_cast<const uint64_t*>(take(n.bitmaps));
  args.fragments = reinterpret_cast<const uint32_t*>(take(n.fragments));
  all.items = take(n.items);
  args.schedule = take(n.schedule);
  args.row_ptr = take(n.row_ptr);
  args.tile_index = take(n.tile_index);
  args.tile_code = take(n.tile_code);
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
