// One copy per row, rows split over the OpenMP threads; prefix sums sequentially.
#include <cstring>

#include "padding.cuh"

namespace {
void offsets(const PaddingArgs& args) {
  int64_t sum = 0;
  args.offsets[0] = 0;
  for (int64_t b = 0; b < args.batch; ++b) {
    const int64_t n = padding_length(args, b);
    for (int64_t s = 0; s < n && sum + s < args.total; ++s) args.indices[sum + s] = b * args.seq + s;
    sum += n;
    args.offsets[b + 1] = int32_t(sum);
  }
  for (int64_t r = sum; r < args.total; ++r) args.indices[r] = -1;
}

// Row r of out from row source(r) of in; zeros where that is negative.
template <typename Source> void rows(const PaddingArgs& args, int64_t count, Source source) {
  auto in = static_cast<const char*>(args.in);
  auto out = static_cast<char*>(args.out);
#pragma omp parallel for schedule(static) if (count * args.row_bytes > 65536)
  for (int64_t r = 0; r < count; ++r) {
    const int64_t from = source(r);
    if (from < 0)
      std::memset(out + r * args.row_bytes, 0, size_t(args.row_bytes));
    else
      std::memcpy(out + r * args.row_bytes, in + from * args.in_row, size_t(args.row_bytes));
  }
}
}  // namespace

FUSESCOPE_KERNEL(const PaddingArgs* args, void*) {
  const int64_t seq = args->seq, all = args->batch * seq;
  if (args->request == PADDING_OFFSETS) offsets(*args);
  if (args->request == PADDING_PACK)
    rows(*args, args->total, [&](int64_t r) { return args->indices[r] < all ? args->indices[r] : -1; });
  if (args->request == PADDING_UNPACK)
    rows(*args, all, [&](int64_t r) {
      const int64_t b = r / seq, s = r - b * seq;
      return s < packed_length(*args, b) ? args->offsets[b] + s : int64_t(-1);
    });
  return nullptr;
}
