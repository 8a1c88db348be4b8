// As v2_registers, but where warps of a row each would leave multiprocessors idle, four warps or more share a row.
#include "registers.cuh"

namespace {
// Short rows over more threads than row::by_length gives them; from 2048 elements on there are no more to give.
template <typename Body> const char* by_length_of_few(int64_t cols, Body body) {
  using std::integral_constant;
  if (cols <= 256) return body(integral_constant<int, 64>{}, integral_constant<int, 8>{});
  if (cols <= 1024) return body(integral_constant<int, 128>{}, integral_constant<int, 8>{});
  return row::by_length(cols, body);
}
}  // namespace

FUSESCOPE_KERNEL(const BiasResidualLayernormArgs* args, void* stream) {
  const bool few =
      args->rows < 16 * int64_t(multiprocessors());  // up to here 16 warps a multiprocessor would have a row each
  return launch(*args, stream, [few](int64_t cols, auto body) {
    return few ? by_length_of_few(cols, body) : row::by_length(cols, body);
  });
}
