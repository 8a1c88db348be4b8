// For up to sixteen rows: every block norms them once more, into shared memory, while its weights are on their way.
// archs: sm_90a
// expects: HMMA
//
// In decoding a norm of its own takes one latency of the memory, a launch and a wait for few kilobytes. Here a block
// waits for x as it does without a norm; two reductions are added, and no kernel. Scale, shift and the first weights
// are requested before the previous kernel has ended (settled).
#include "../common/dependent.cuh"
#include "../common/few_rows.cuh"
#include "../common/gelu.h"
#include "../common/reduce.cuh"
#include "../common/row.cuh"
#include "norm_linear.cuh"

namespace {
using few_rows::THREADS;
using few_rows::WARPS;
constexpr int FLIGHT = 4;                  // 16-byte loads of x that a thread has on their way
constexpr int64_t MOST_SHARED = 84 << 10;  // bytes; with the sums of a block, two blocks fit a multiprocessor

// Elements from one normed row to the next: 64 bytes more than a multiple of 128, so that two rows lie in different
// banks.
inline int64_t row_of(int64_t terms) { return (terms + 63) / 64 * 64 + 32; }

// The rows of a call, normed in shared memory by the whole block.
template <typename T> struct Normed {
  using Pack = row::Pack<T>;
  static constexpr int width = 8;

  T *rows, *scale, *shift;
  int step, terms;

  __device__ __forceinline__ Normed(char* shared, int count, int step, int terms)
      : rows(reinterpret_cast<T*>(shared)),
        scale(rows + count * step),
        shift(scale + terms),
        step(step),
        terms(terms) {}

  // Requests what does not depend on the kernel before.
  __device__ __forceinline__ void keep(const T* scale_from, const T* shift_from) {
    for (int at = threadIdx.x * width; at < terms; at += THREADS * width) {
      *reinterpret_cast<Pack*>(scale + at) = *reinterpret_cast<const Pack*>(scale_from + at);
      if (shift_from) *reinterpret_cast<Pack*>(shift + at) = *reinterpret_cast<const Pack*>(shift_from + at);
    }
  }

  // The sum over the `per` neighbouring warps that share a row; `parts` is used once per call of norm_rows.
  static __device__ __forceinline__ float over_row(float value, int per, float (&parts)[WARPS]) {
    value = warp_reduce<Sum>(value);
    if (per == 1) return value;
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) parts[warp] = value;
    __syncthreads();
    value = 0.0f;
    for (int i = 0; i < per; ++i) value += parts[warp / per * per + i];
    return value;
  }

  __device__ __forceinline__ void norm_rows(const T* x, int64_t x_row, int count, bool shifts, float eps) {
    __shared__ float parts[2][WARPS];
    const int per = count == 1 ? 8 : count == 2 ? 4 : count <= 4 ? 2 : 1, warp = threadIdx.x / 32;
    const int begin = (warp % per * 32 + threadIdx.x % 32) * width, stride = per * 32 * width;
    // A thread reads back what it has written itself, so only the sums and the end need the block. With more than one
    // warp per row the loop runs once.
    for (int r = warp / per; r < (count + WARPS - 1) / WARPS * WARPS; r += WARPS / per) {
      const bool inside = r < count;
      T* const row = rows + r * step;
      auto each = [&](auto f) {
        for (int at = begin; inside && at < terms; at += stride) f(at, *reinterpret_cast<Pack*>(row + at));
      };
      float sum = 0.0f, mean = 0.0f, squares = 0.0f;
      for (int at = begin; inside && at < terms; at += FLIGHT * stride) {
        Pack pack[FLIGHT];
#pragma unroll
        for (int i = 0; i < FLIGHT; ++i)
          if (at + i * stride < terms) pack[i] = *reinterpret_cast<const Pack*>(x + r * x_row + at + i * stride);
#pragma unroll
        for (int i = 0; i < FLIGHT; ++i) {
          if (at + i * stride >= terms) continue;
          *reinterpret_cast<Pack*>(row + at + i * stride) = pack[i];
#pragma unroll
          for (int e = 0; e < width; ++e) {
            const float v = to_float(pack[i].value[e]);
            sum += shifts ? v : v * v;
          }
        }
      }
      sum = over_row(sum, per, parts[0]);
      if (shifts) {
        mean = sum / float(terms);
        each([&](int, const Pack& pack) {
#pragma unroll
          for (int e = 0; e < width; ++e) {
            const float v = to_float(pack.value[e]) - mean;
            squares += v * v;
          }
        });
        squares = over_row(squares, per, parts[1]);
      } else {
        squares = sum;
      }
      const float by = rsqrtf(squares / float(terms) + eps);
      each([&](int at, Pack& pack) {
        const Pack factor = *reinterpret_cast<const Pack*>(scale + at);
        Pack added{};
        if (shifts) added = *reinterpret_cast<const Pack*>(shift + at);
#pragma unroll
        for (int e = 0; e < width; ++e) {
          const float v = (to_float(pack.value[e]) - mean) * by * to_float(factor.value[e]);
          pack.value[e] = from_float<T>(shifts ? v + to_float(added.value[e]) : v);
        }
      });
      if (per > 1) break;
    }
    __syncthreads();
  }
};

template <typename T, int Activation, int Tiles, int Eights>
__global__ void __launch_bounds__(THREADS, 2) norm_linear_sixteen_rows(const NormLinearArgs a, int step) {
  extern __shared__ __align__(16) char shared[];
  const int rows = int(a.rows), terms = int(a.terms);
  auto shift = static_cast<const T*>(a.shift), bias = static_cast<const T*>(a.bias);
  few_rows::Product<T, Tiles, Eights> product(static_cast<const T*>(a.weight), a.weight_row, int(a.outputs), terms);
  Normed<T> normed(shared, rows, step, terms);
  if (!a.settled) wait_for_previous();
  product.start();
  normed.keep(static_cast<const T*>(a.scale), shift);
  wait_for_previous();
  let_next_start();
  __syncthreads();
  normed.norm_rows(static_cast<const T*>(a.x), a.x_row, rows, shift != nullptr, a.eps);
  product.multiply([&](int r, int at) {
    uint4 v = {0, 0, 0, 0};
    if (r < rows && at < terms) v = *reinterpret_cast<const uint4*>(normed.rows + r * step + at);
    return v;
  });
  product.finish(rows, [&](int r, int n, float whole) {
    whole += bias ? to_float(bias[n]) : 0.0f;
    if constexpr (Activation == NORM_LINEAR_GELU_ERF) whole = gelu_erf(whole, [](float u) { return __expf(u); });
    if constexpr (Activation == NORM_LINEAR_GELU_TANH) whole = gelu_tanh(whole, [](float u) { return __expf(u); });
    static_cast<T*>(a.out)[int64_t(r) * a.outputs + n] = from_float<T>(whole);
  });
}

// Bytes of a block's dynamic shared memory.
int64_t shared_bytes(const NormLinearArgs& a) { return 2 * (a.rows * row_of(a.terms) + 2 * a.terms); }

const char* unsupported(const NormLinearArgs& a) {
  if (a.rows > 16) return "unsupported: more than 16 rows (use a norm and linear)";
  if (shared_bytes(a) > MOST_SHARED) return "unsupported: rows that take more than 84 KiB of shared memory";
  if (a.terms % 8 || a.x_row % 8 || a.weight_row % 8)
    return "unsupported: rows that are not multiples of 16 bytes apart";
  if (!aligned(a.x, 16) || !aligned(a.weight, 16) || !aligned(a.scale, 16) || !aligned(a.shift, 16))
    return "unsupported: addresses that are not multiples of 16 bytes";
  if (a.outputs > INT32_MAX / 2) return "unsupported: more than 2^30 outputs";
  return nullptr;
}

template <typename T, int Activation, int Tiles, int Eights>
const char* launch(const NormLinearArgs& a, cudaStream_t stream) {
  constexpr auto kernel = norm_linear_sixteen_rows<T, Activation, Tiles, Eights>;
  if (const char* why = allow_shared<kernel>(int(MOST_SHARED))) return why;
  const int64_t blocks = (a.outputs + 16 * Tiles - 1) / (16 * Tiles);
  return launch_dependent(kernel, unsigned(blocks), unsigned(THREADS), int(shared_bytes(a)), stream, 1, a,
                          int(row_of(a.terms)));
}
}  // namespace

FUSESCOPE_KERNEL(const NormLinearArgs* args, void* stream) {
  const NormLinearArgs& a = *args;
  if (const char* why = unsupported(a)) return why;
  const char* const refusal = "unsupported: float32 (mma.sync takes float16 and bfloat16)";
  return dispatch_16bit(a.dtype, refusal, [&](auto zero) {
    auto with = [&](auto activation) {
      using T = decltype(zero);
      constexpr int how = decltype(activation)::value;
      auto on = static_cast<cudaStream_t>(stream);
      // Two tiles per block share the normed rows, where that still leaves every multiprocessor a block.
      const bool two = a.outputs >= int64_t(multiprocessors()) * 32;
      if (a.rows <= 8) return two ? launch<T, how, 2, 1>(a, on) : launch<T, how, 1, 1>(a, on);
      return two ? launch<T, how, 2, 2>(a, on) : launch<T, how, 1, 2>(a, on);
    };
    using std::integral_constant;
    if (a.activation == NORM_LINEAR_GELU_ERF) return with(integral_constant<int, NORM_LINEAR_GELU_ERF>{});
    if (a.activation == NORM_LINEAR_GELU_TANH) return with(integral_constant<int, NORM_LINEAR_GELU_TANH>{});
    return with(integral_constant<int, NORM_LINEAR_NONE>{});
  });
}
