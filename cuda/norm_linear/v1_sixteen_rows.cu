// For up to sixteen rows: every block takes the statistics of all rows once more, and norms what it multiplies.
// archs: sm_90a
// expects: HMMA
//
// In decoding a norm of its own takes one latency of the memory, a launch and a wait for few kilobytes. Here a block
// waits for x as it does without a norm; a reduction is added, and no kernel. Scale, shift, bias and the first weights
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
constexpr int WIDTH = 8, MOST_ROWS = 16;
constexpr int FLIGHT = 4;              // 16-byte loads of x that a thread has on their way
constexpr int MOST_SHARED = 64 << 10;  // bytes of scale and shift; with the sums two blocks fit a multiprocessor

template <typename T> __device__ __forceinline__ const T* elements(const uint4& eight) {
  return reinterpret_cast<const T*>(&eight);
}

// Mean and inverse deviation of every row of x. Sums are of the distance from the row's first element, a member of the
// row, so the square of their mean is at most `terms` variances and cancels no more than that.
template <typename T> struct Statistics {
  float2 (&parts)[MOST_ROWS][WARPS];  // of each row the sums of the warps that share it
  int rows, terms;
  bool shifts;

  __device__ __forceinline__ int per_row() const { return rows == 1 ? 8 : rows == 2 ? 4 : rows <= 4 ? 2 : 1; }

  __device__ __forceinline__ float first(const T* row) const {
    return shifts ? to_float(elements<T>(few_rows::load_written(row))[0]) : 0.0f;
  }

  __device__ __forceinline__ void take(const T* x, int64_t x_row) const {
    const int per = per_row(), warp = threadIdx.x / 32, lane = threadIdx.x % 32, stride = per * 32 * WIDTH;
    for (int r = warp / per; r < rows; r += WARPS / per) {
      const T* const row = x + r * x_row;
      const float from = first(row);
      float sum = 0.0f, squares = 0.0f;
      for (int at = (warp % per * 32 + lane) * WIDTH; at < terms; at += FLIGHT * stride) {
        uint4 eight[FLIGHT];
#pragma unroll
        for (int i = 0; i < FLIGHT; ++i)
          if (at + i * stride < terms) eight[i] = few_rows::load_written(row + at + i * stride);
#pragma unroll
        for (int i = 0; i < FLIGHT; ++i) {
          if (at + i * stride >= terms) continue;
#pragma unroll
          for (int e = 0; e < WIDTH; ++e) {
            const float v = to_float(elements<T>(eight[i])[e]) - from;
            sum += v;
            squares += v * v;
          }
        }
      }
      sum = warp_reduce<Sum>(sum);
      squares = warp_reduce<Sum>(squares);
      if (lane == 0) parts[r][warp % per] = make_float2(sum, squares);
    }
    __syncthreads();
  }

  // (mean, inverse deviation) of row r; the mean is 0 of an RMSNorm.
  __device__ __forceinline__ float2 of(const T* row, int r, float eps) const {
    float sum = 0.0f, squares = 0.0f;
    const int per = per_row();
#pragma unroll
    for (int i = 0; i < WARPS; ++i) {
      if (i >= per) break;
      sum += parts[r][i].x;
      squares += parts[r][i].y;
    }
    const float mean = shifts ? sum / float(terms) : 0.0f;
    const float variance = squares / float(terms) - mean * mean;
    return make_float2(mean + first(row), rsqrtf(fmaxf(variance, 0.0f) + eps));
  }
};

template <typename T, int Activation, int Tiles, int Eights>
__global__ void __launch_bounds__(THREADS, 2) norm_linear_sixteen_rows(const NormLinearArgs a) {
  using Product = few_rows::Product<T, Tiles, Eights>;
  extern __shared__ __align__(16) char shared[];
  __shared__ float2 parts[MOST_ROWS][WARPS];
  const int rows = int(a.rows), terms = int(a.terms), outputs = int(a.outputs), n = Product::output();
  const bool shifts = a.shift != nullptr;
  auto x = static_cast<const T*>(a.x), bias = static_cast<const T*>(a.bias);
  uint4 *const scale = reinterpret_cast<uint4*>(shared), *const shift = scale + terms / WIDTH;
  const Statistics<T> statistics{parts, rows, terms, shifts};

  Product product(static_cast<const T*>(a.weight), a.weight_row, outputs, terms);
  if (!a.settled) wait_for_previous();
  product.start();
  T added = from_float<T>(0.0f);  // as it is: a conversion would wait for its load
  if (bias && n < outputs) added = bias[n];
  for (int i = threadIdx.x; i < terms / WIDTH; i += THREADS) {
    scale[i] = static_cast<const uint4*>(a.scale)[i];
    if (shifts) shift[i] = static_cast<const uint4*>(a.shift)[i];
  }
  const T* row[Eights];
#pragma unroll
  for (int j = 0; j < Eights; ++j) {
    row[j] = x + Product::own_row(j, rows) * a.x_row;
    have_ready(row[j]);
  }
  wait_for_previous();
  let_next_start();
  statistics.take(x, a.x_row);
  float2 found[Eights];
#pragma unroll
  for (int j = 0; j < Eights; ++j) found[j] = statistics.of(row[j], Product::own_row(j, rows), a.eps);

  product.run(
      rows,
      [&](int j, int ahead) {
        const int at = product.k + ahead;
        uint4 eight = few_rows::load_written(row[j] + at);
        const uint4 factor = scale[at / WIDTH], onto = shifts ? shift[at / WIDTH] : uint4{0, 0, 0, 0};
        T* const v = reinterpret_cast<T*>(&eight);
#pragma unroll
        for (int e = 0; e < WIDTH; ++e)
          v[e] = from_float<T>((to_float(v[e]) - found[j].x) * found[j].y * to_float(elements<T>(factor)[e]) +
                               to_float(elements<T>(onto)[e]));
        return eight;
      },
      [&](int i, float whole) {
        whole += to_float(added);
        if constexpr (Activation == NORM_LINEAR_GELU_ERF) whole = gelu_erf(whole, [](float u) { return __expf(u); });
        if constexpr (Activation == NORM_LINEAR_GELU_TANH) whole = gelu_tanh(whole, [](float u) { return __expf(u); });
        static_cast<T*>(a.out)[int64_t(Product::row(i)) * outputs + n] = from_float<T>(whole);
      });
}

const char* unsupported(const NormLinearArgs& a) {
  if (a.rows > MOST_ROWS) return "unsupported: more than 16 rows (use a norm and linear)";
  if (a.terms % 8 || a.x_row % 8 || a.weight_row % 8)
    return "unsupported: rows that are not multiples of 16 bytes apart";
  if (4 * a.terms > MOST_SHARED) return "unsupported: rows of more than 16384 elements";
  if (!aligned(a.x, 16) || !aligned(a.weight, 16) || !aligned(a.scale, 16) || !aligned(a.shift, 16))
    return "unsupported: addresses that are not multiples of 16 bytes";
  if (a.outputs > INT32_MAX / 2) return "unsupported: more than 2^30 outputs";
  return nullptr;
}

template <typename T, int Activation, int Tiles, int Eights>
const char* launch(const NormLinearArgs& a, cudaStream_t stream) {
  constexpr auto kernel = norm_linear_sixteen_rows<T, Activation, Tiles, Eights>;
  if (const char* why = allow_shared<kernel>(MOST_SHARED)) return why;
  const int64_t blocks = (a.outputs + 16 * Tiles - 1) / (16 * Tiles);
  return launch_dependent(kernel, unsigned(blocks), unsigned(THREADS), int(4 * a.terms), stream, 1, a);
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
      // Two tiles per block share x, where that still leaves every multiprocessor a block.
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
