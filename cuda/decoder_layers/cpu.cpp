// Activations stay in fp32, rounded where the header says; a row of weights is widened once for all sequences, 32 keys
// of a cache once for all query heads that read them.
#include <cmath>
#include <vector>

#include "../common/cpu_block.h"
#include "../common/cpu_eight_bit.h"
#include "../common/cpu_norm.h"
#include "../common/cpu_softmax.h"
#include "../common/gelu.h"
#include "../common/silu.h"
#include "decoder_layers.cuh"

using namespace fusescope_cpu;
using namespace cpu_block;

namespace {
constexpr int kKeys = 32, kRows = 4;

// Rows of fp32 with zeros behind them, so that products take whole blocks.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t cols)
      : cols(cols), width(padded(cols)), rows_(rows), all_(std::make_unique<float[]>(size_t(rows * width))) {}
  float* row(int64_t r) const { return all_.get() + r * width; }
  int64_t rows() const { return rows_; }

  const int64_t cols, width;

 private:
  int64_t rows_;
  std::unique_ptr<float[]> all_;
};

template <typename T> void rounded(float* values, int64_t count) {
  if constexpr (sizeof(T) == 2)
    for (int64_t i = 0; i < count; ++i) values[i] = to_float(from_float<T>(values[i]));
}

// LayerNorm with a bias, else RMSNorm. out may be x.
template <typename T>
void norm_row(const float* x, const float* weight, const float* bias, float* out, int64_t cols, float eps) {
  if (bias) {
    normalise(x, weight, bias, out, cols, eps);
  } else {
    const double squares = blocked_sum(x, cols, [](float v) { return v * v; });
    const float scale = float(1.0 / std::sqrt(squares / double(cols) + double(eps)));
#pragma omp simd
    for (int64_t j = 0; j < cols; ++j) out[j] = x[j] * scale * weight[j];
  }
  rounded<T>(out, cols);
}

// What a product multiplies with; no scales where format is kDecoderAsX.
struct Linear {
  const void *weight, *bias;
  const float* scales;
  int32_t format;
};

// out = scales (x weight^T) + bias in fp32, not rounded.
template <typename T> void product(const Matrix& x, const Linear& with, const Matrix& out) {
  const int64_t terms = x.cols, rows = x.rows();
  const bool as_x = with.format == kDecoderAsX, direct = as_x && sizeof(T) == 4 && terms == x.width;
  const Widened<T> shift(with.bias, out.cols);
#pragma omp parallel if (out.cols * terms > 8192)
  {
    const Matrix packed(1, terms);
#pragma omp for schedule(static)
    for (int64_t o = 0; o < out.cols; ++o) {
      const float *w = packed.row(0), scale = as_x ? 1.f : with.scales[o], bias = with.bias ? shift.data[o] : 0.f;
      if (direct)
        w = static_cast<const float*>(with.weight) + o * terms;
      else if (as_x)
        widen(static_cast<const T*>(with.weight) + o * terms, packed.row(0), terms);
      else
        widen_weights(static_cast<const uint8_t*>(with.weight) + o * terms, packed.row(0), terms, with.format);
      for (int64_t r = 0; r < rows; r += kRows) {
        const int count = int(std::min<int64_t>(kRows, rows - r));
        with_blocks(count, [&](auto most) {
          Block sum[most] = {};
          for (int64_t i = 0; i < x.width; i += SIZE) {
            const Block here = load(w + i);
            for (int n = 0; n < most; ++n) sum[n] += here * load(x.row(r + n) + i);
          }
          for (int n = 0; n < most; ++n) out.row(r + n)[o] = total(sum[n]) * scale + bias;
        });
      }
    }
  }
}

// The first `rotary` elements of a head, turned by cosines and sines.
void turn(float* x, const float* cos_sin, int64_t rotary) {
  const int64_t half = rotary / 2;
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float first = x[i], second = x[i + half];
    x[i] = first * cos_sin[i] - second * cos_sin[i + half];
    x[i + half] = second * cos_sin[i] + first * cos_sin[i + half];
  }
}

template <typename T> struct Decoder {
  const DecoderLayersArgs& a;
  const int64_t dim = a.head_dim, inner = a.heads * dim, kv = a.kv_heads * dim, group = a.heads / a.kv_heads;
  const Matrix x{a.rows, a.width}, normed{a.rows, a.width}, sums{a.rows, a.width}, packed{a.rows, inner + 2 * kv},
      context{a.rows, inner}, first{a.rows, a.activation == DECODER_SWIGLU ? 2 * int64_t(a.ffn) : a.ffn},
      activated{a.rows, a.ffn};

  bool in_cache(int64_t r) const { return a.place[r] >= 0 && a.place[r] < a.seq_max; }

  void norm(const void* weight, const void* bias) const {
    const Widened<T> scale(weight, a.width), shift(bias, a.width);
    for (int64_t r = 0; r < a.rows; ++r) norm_row<T>(x.row(r), scale.data, shift.data, normed.row(r), a.width, a.eps);
  }

  void add(const Matrix& from, const Linear& with) const {
    product<T>(from, with, sums);
    for (int64_t r = 0; r < a.rows; ++r) {
      for (int64_t j = 0; j < a.width; ++j) x.row(r)[j] += sums.row(r)[j];
      rounded<T>(x.row(r), a.width);
    }
  }

  // Queries and keys normed and turned, keys and values in their caches.
  void place_heads(const DecoderLayer& layer) const {
    const Widened<T> q_norm(layer.q_norm, dim), k_norm(layer.k_norm, dim);
    for (int64_t r = 0; r < a.rows; ++r) {
      rounded<T>(packed.row(r), packed.cols);
      for (int64_t h = 0; h < a.heads + a.kv_heads; ++h) {
        float* head = packed.row(r) + h * dim;
        if (layer.q_norm) norm_row<T>(head, h < a.heads ? q_norm.data : k_norm.data, nullptr, head, dim, a.eps);
        if (!a.cos_sin) continue;
        turn(head, a.cos_sin + r * a.rotary, a.rotary);
        rounded<T>(head, a.rotary);
      }
      for (int64_t h = 0; in_cache(r) && h < a.kv_heads; ++h) {
        const int64_t at = r * a.cache_step[0] + h * a.cache_step[1] + a.place[r] * a.cache_step[2];
        const float* from = packed.row(r) + inner + h * dim;
        narrow(from, static_cast<T*>(layer.k_cache) + at, dim);
        narrow(from + kv, static_cast<T*>(layer.v_cache) + at, dim);
      }
    }
  }

  // The query heads of row r that read one KV head.
  void attend(const DecoderLayer& layer, int64_t r, int64_t kv_head) const {
    const int64_t begin = r * a.cache_step[0] + kv_head * a.cache_step[1], keys = a.place[r] + 1;
    const Matrix query(group, dim), k(kKeys, dim), v(kKeys, dim), out(group, dim);
    const float scale = float(1. / std::sqrt(double(dim)));
    std::vector<float> top(size_t(group), kNone), weights(size_t(group), 0.f);
    for (int64_t g = 0; g < group; ++g)
      for (int64_t d = 0; d < dim; ++d) query.row(g)[d] = packed.row(r)[(kv_head * group + g) * dim + d] * scale;
    for (int64_t key = 0; key < keys; key += kKeys) {
      const int live = int(std::min<int64_t>(kKeys, keys - key));
      for (int j = 0; j < live; ++j) {
        const int64_t at = begin + (key + j) * a.cache_step[2];
        widen(static_cast<const T*>(layer.k_cache) + at, k.row(j), dim);
        widen(static_cast<const T*>(layer.v_cache) + at, v.row(j), dim);
      }
      for (int64_t g = 0; g < group; ++g) {
        float p[kKeys];
        for (int j = 0; j < live; ++j) {
          Block sum = {};
          for (int64_t d = 0; d < k.width; d += SIZE) sum += load(query.row(g) + d) * load(k.row(j) + d);
          p[j] = total(sum);
        }
        const float shrink = weigh<fast_exp>(p, live, top[g], weights[g]);
        for (int64_t d = 0; d < v.width; d += SIZE) {
          Block sum = load(out.row(g) + d) * shrink;
          for (int j = 0; j < live; ++j) sum += p[j] * load(v.row(j) + d);
          store(out.row(g) + d, sum);
        }
      }
    }
    for (int64_t g = 0; g < group; ++g) {
      float* to = context.row(r) + (kv_head * group + g) * dim;
      for (int64_t d = 0; d < dim; ++d) to[d] = out.row(g)[d] / weights[g];
      rounded<T>(to, dim);
    }
  }

  void activate() const {
    const auto exp = [](float v) { return fast_exp(v); };
    for (int64_t r = 0; r < a.rows; ++r) {
      float *from = first.row(r), *to = activated.row(r);
      if (a.activation == DECODER_SWIGLU) {
        rounded<T>(from, first.cols);
#pragma omp simd
        for (int64_t j = 0; j < a.ffn; ++j) to[j] = silu(from[j], exp) * from[j + a.ffn];
      } else if (a.activation == DECODER_GELU_ERF) {
#pragma omp simd
        for (int64_t j = 0; j < a.ffn; ++j) to[j] = gelu_erf(from[j], exp);
      } else {
#pragma omp simd
        for (int64_t j = 0; j < a.ffn; ++j) to[j] = gelu_tanh(from[j], exp);
      }
      rounded<T>(to, a.ffn);
    }
  }

  void run() const {
    for (int64_t r = 0; r < a.rows; ++r) widen(static_cast<const T*>(a.x) + r * a.width, x.row(r), a.width);
    for (int32_t i = 0; i < a.count; ++i) {
      const DecoderLayer& layer = a.layers[i];
      norm(layer.norm1, layer.norm1_bias);
      product<T>(normed, {layer.qkv, layer.qkv_bias, layer.qkv_scales, a.weights}, packed);
      place_heads(layer);
#pragma omp parallel for schedule(dynamic) if (a.rows * a.kv_heads > 1)
      for (int64_t task = 0; task < a.rows * a.kv_heads; ++task)
        if (in_cache(task / a.kv_heads)) attend(layer, task / a.kv_heads, task % a.kv_heads);
      add(context, {layer.output, layer.output_bias, layer.output_scales, a.weights});
      norm(layer.norm2, layer.norm2_bias);
      product<T>(normed, {layer.first, layer.first_bias, layer.first_scales, a.weights}, first);
      activate();
      add(activated, {layer.second, layer.second_bias, layer.second_scales, a.weights});
    }
    for (int64_t r = 0; r < a.rows; ++r) {
      if (!in_cache(r)) std::fill_n(x.row(r), a.width, NAN);
      narrow(x.row(r), static_cast<T*>(a.out) + r * a.width, a.width);
    }
  }
};
}  // namespace

FUSESCOPE_KERNEL(const DecoderLayersArgs* args, void*) {
  return dispatch(args->dtype, [&](auto zero) -> const char* {
    Decoder<decltype(zero)>{*args}.run();
    return nullptr;
  });
}
