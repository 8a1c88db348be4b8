// All layers in one persistent launch: five phases a layer, each of which waits for the values that it needs and no
// others, while the weights of later products and layers come into shared memory.
// archs: sm_90a
// expects: HMMA UBLKCP
//
// One block per multiprocessor; what blocks publish to one another goes through the L2 cache. The latencies of that are
// hidden as long as the ring has room: 135 KB of weights per multiprocessor, 4.1 us of what memory gives.
#include "attend.cuh"
#include "product.cuh"
#include "rows.cuh"

namespace {
using namespace decoder;

constexpr int SPLIT_KEYS = 64;  // that a split has at least

// Of the consumer warps.
struct Shared {
  float4 moments[WARPS];
  int place[MOST_ROWS], used[MOST_ROWS];
};
constexpr int RING_END = (RING_BYTES + 127) / 128 * 128, LAYERS_BEGIN = RING_END + SCRATCH + int(sizeof(Shared));
static_assert(LAYERS_BEGIN % 16 == 0 && sizeof(DecoderLayer) % 16 == 0);

template <typename T, int HeadDim, int Format>
__device__ __forceinline__ void compute(const Step& s, const DecoderLayer* layers, const Ring& ring, float* scratch,
                                        Shared& shared, T* rows) {
  Attention<T, HeadDim> attention(s, scratch, shared.place, shared.used);
  RingPosition at;
  int turn = 0;
  auto vector = [](const void* p) { return static_cast<const T*>(p); };
  T *qkv = static_cast<T*>(s.qkv), *middle = static_cast<T*>(s.after_attention), *inner = static_cast<T*>(s.inner);
  T* after = static_cast<T*>(s.after_layer);
  float *context = s.context, *sizes = s.context_size;
  const T* x = vector(s.x);
#pragma unroll 1
  for (int i = 0; i < s.layers; ++i) {
    const DecoderLayer& l = layers[i];
    if (i + 1 == s.layers) after = static_cast<T*>(s.out);
#pragma unroll 1
    for (int p = 0; p < 4; ++p) {
      const Shape& shape = s.shape[p];
      Finish<T> finish;
      finish.activated = p == 2, finish.activation = s.activation;
      finish.bias = vector(p == 0 ? l.qkv_bias : p == 1 ? l.output_bias : p == 2 ? l.first_bias : l.second_bias);
      finish.scales = p == 0 ? l.qkv_scales : p == 1 ? l.output_scales : p == 2 ? l.first_scales : l.second_scales;
      finish.residual = p == 1 ? x : p == 3 ? middle : nullptr;
      finish.out = p == 0 ? qkv : p == 1 ? middle : p == 2 ? inner : after;
      finish.width = p == 0 ? shape.tiles * 8 : p == 2 ? s.ffn : s.width;
      if (p == 1) {
        join_splits<T, HeadDim>(rows, shape.pitch, s, context, sizes, shared.used);
      } else {
        Norm<T> norm(s, vector(p ? l.norm2 : l.norm1), vector(p ? l.norm2_bias : l.norm1_bias));
        fetch_rows(rows,
                   p == 0   ? x
                   : p == 2 ? middle
                            : inner,
                   p || i, s.rows * shape.terms / 8, p == 3 ? s.eights_of_ffn : s.eights_of_width, shape.terms / 8,
                   shape.pitch);
        if (p < 3) norm.run(rows, shape.pitch, shared.moments);
      }
      product<T, Format>(ring, at, rows, scratch, s.rows, shape, finish, turn);
      turn = next_turn(turn, shape);
      if (p == 0) attention.run(l, qkv, context, sizes);
    }
    x = after;
    qkv += s.rows * s.shape[0].tiles * 8, inner += s.rows * s.ffn;
    middle += s.rows * s.width, after += s.rows * s.width;
    context += s.rows * s.heads * s.splits * HeadDim, sizes += s.rows * s.heads * s.splits * 2;
  }
}

template <typename T, int HeadDim, int Format>
__global__ void __launch_bounds__(THREADS + 32 * PRODUCER_WARPS, 1) decoder_layers_one_launch(
    const __grid_constant__ Step s) {
  extern __shared__ __align__(128) unsigned char memory[];
  Ring ring(memory);
  float* const scratch = reinterpret_cast<float*>(memory + RING_END);
  Shared& shared = *reinterpret_cast<Shared*>(memory + RING_END + SCRATCH);
  if (threadIdx.x == 0) ring.open();
  if (threadIdx.x < s.rows) {
    const int64_t at = s.place[threadIdx.x];
    const int keys = at < 0 || at >= s.seq_max ? 0 : int(at) + 1, splits = (keys + SPLIT_KEYS - 1) / SPLIT_KEYS;
    shared.place[threadIdx.x] = keys - 1;
    shared.used[threadIdx.x] = splits < 1 ? 1 : splits < s.splits ? splits : s.splits;
  }
  // Shared memory is quicker than parameters with an index that changes.
  DecoderLayer* const layers = reinterpret_cast<DecoderLayer*>(memory + LAYERS_BEGIN);
  for (int i = threadIdx.x; i < s.layers * int(sizeof(DecoderLayer) / 8); i += blockDim.x)
    reinterpret_cast<uint64_t*>(layers)[i] = reinterpret_cast<const uint64_t*>(s.layer)[i];
  __syncthreads();
  if (threadIdx.x < THREADS)
    return compute<T, HeadDim, Format>(s, layers, ring, scratch, shared, reinterpret_cast<T*>(layers + s.layers));
  Attention<T, HeadDim> attention(s, scratch, shared.place, shared.used);
  produce_weights<T, Format>(s, layers, ring, [&](const DecoderLayer& layer) {
    attention.prefetch_keys(layer, threadIdx.x - THREADS, 32 * PRODUCER_WARPS);
  });
}

int widest(const DecoderLayersArgs& a) {
  const int inner = a.heads * a.head_dim, more = a.width > inner ? a.width : inner;
  return more > a.ffn ? more : a.ffn;
}
int shared_bytes(const DecoderLayersArgs& a) {
  return LAYERS_BEGIN + a.count * int(sizeof(DecoderLayer)) + a.rows * (widest(a) + 32) * 2;
}

const char* refuse(const DecoderLayersArgs& a) {
  if (a.dtype == FS_FLOAT32) return "unsupported: float32 (all layers in one launch are float16 and bfloat16)";
  if (a.rows > MOST_ROWS) return "unsupported: more than 8 sequences in one launch of all layers";
  if (a.count > MOST_LAYERS) return "unsupported: more than 80 layers in one launch";
  if (a.head_dim != 64 && a.head_dim != 128) return "unsupported: heads that are not 64 or 128 columns";
  if (a.width % 32 || a.ffn % 32) return "unsupported: a width that is not a multiple of 32";
  if (a.cos_sin && a.rotary % (a.head_dim / 32))
    return "unsupported: a head that turns by no whole number of elements per thread";
  if (a.heads % a.kv_heads) return "unsupported: query heads that are no multiple of the KV heads";
  if (shared_bytes(a) > MOST_SHARED) return "unsupported: rows that do not fit beside the weights in shared memory";
  if (a.seq_max > INT32_MAX) return "unsupported: caches of more than 2^31 places";
  const auto vector = [](const void* p) { return aligned(p, 16); };
  bool vectors =
      vector(a.x) && vector(a.out) && a.cache_step[0] % 8 == 0 && a.cache_step[1] % 8 == 0 && a.cache_step[2] % 8 == 0;
  for (int i = 0; i < a.count; ++i) {
    const DecoderLayer& l = a.layers[i];
    for (const void* p : {l.norm1, l.norm1_bias, l.qkv, l.output, l.norm2, l.norm2_bias, l.first, l.second,
                          static_cast<const void*>(l.k_cache), static_cast<const void*>(l.v_cache)})
      vectors = vectors && vector(p);
  }
  return vectors ? nullptr : "unsupported: tensors that are no 16-byte vectors";
}

template <typename T, int HeadDim, int Format>
const char* launch(const DecoderLayersArgs& a, const Step& step, int64_t published, cudaStream_t stream) {
  constexpr auto kernel = decoder_layers_one_launch<T, HeadDim, Format>;
  if (const char* why = allow_shared<kernel>(MOST_SHARED)) return why;
  return cooperative::launch(kernel, cooperative::most_blocks(), THREADS + 32 * PRODUCER_WARPS, shared_bytes(a), stream,
                             a.workspace, published, step);
}

// published: bytes of the workspace that blocks publish values in.
Step step_of(const DecoderLayersArgs& a, int64_t& published) {
  Step s{};
  for (int i = 0; i < a.count; ++i) s.layer[i] = a.layers[i];
  s.x = a.x, s.out = a.out, s.cos_sin = a.cos_sin, s.place = a.place;
  s.layers = a.count, s.rows = a.rows, s.width = a.width, s.heads = a.heads, s.kv_heads = a.kv_heads;
  s.rotary = a.cos_sin ? a.rotary : 0, s.ffn = a.ffn, s.activation = a.activation, s.eps = a.eps;
  s.scale = kLog2e / sqrtf(float(a.head_dim)), s.seq_max = a.seq_max;
  for (int i = 0; i < 3; ++i) s.cache_step[i] = a.cache_step[i];
  const int inner = a.heads * a.head_dim, first = a.activation == DECODER_SWIGLU ? 2 * a.ffn : a.ffn;
  const int outputs[] = {inner + 2 * a.kv_heads * a.head_dim, a.width, first, a.width};
  const int terms[] = {a.width, inner, a.width, a.ffn};
  for (int i = 0; i < 4; ++i)
    s.shape[i] = {terms[i], outputs[i] / 8, outputs[i] / 8 % cooperative::most_blocks(),
                  pitch_of(terms[i], a.weights != kDecoderAsX)};
  s.heads_of = Divisor(a.heads), s.eights_of_width = Divisor(a.width / 8), s.eights_of_ffn = Divisor(a.ffn / 8);
  s.inverse_width = 1.0f / float(a.width);
  const int vectors[] = {a.width,        a.width,     0,         outputs[0], 0,     0, 0,
                         a.width,        a.width,     a.width,   0,          first, 0, a.width,
                         2 * outputs[0], 2 * a.width, 2 * first, 2 * a.width};
  for (int i = 0; i < VECTORS; ++i) s.vector[i] = vectors[i];
  const int units = a.rows * a.heads, most = cooperative::most_blocks() / units;  // a unit for each multiprocessor
  s.splits = most < 1 ? 1 : most > kDecoderSplits ? kDecoderSplits : most;
  s.units = units * s.splits;
  const auto begin = static_cast<unsigned char*>(a.workspace);
  const auto take = [&](int64_t bytes) {
    void* const found = begin + published;
    published += (bytes * a.rows * a.count + 255) / 256 * 256;
    return found;
  };
  published = 0;
  s.qkv = take(2 * int64_t(a.heads + 2 * a.kv_heads) * a.head_dim);
  s.after_attention = take(2 * int64_t(a.width)), s.after_layer = take(2 * int64_t(a.width));
  s.inner = take(2 * int64_t(a.ffn));
  s.context = static_cast<float*>(take(4 * int64_t(a.heads) * s.splits * a.head_dim));
  s.context_size = static_cast<float*>(take(8 * int64_t(a.heads) * s.splits));
  return s;
}
}  // namespace

FUSESCOPE_KERNEL(const DecoderLayersArgs* args, void* stream) {
  if (const char* why = refuse(*args)) return why;
  const auto on = static_cast<cudaStream_t>(stream);
  int64_t published;
  const Step step = step_of(*args, published);
  const int format = args->weights;
  auto with = [&](auto zero, auto head_dim) {
    using T = decltype(zero);
    if (format == WEIGHT_INT8) return launch<T, head_dim, WEIGHT_INT8>(*args, step, published, on);
    if (format == WEIGHT_E4M3) return launch<T, head_dim, WEIGHT_E4M3>(*args, step, published, on);
    return launch<T, head_dim, kDecoderAsX>(*args, step, published, on);
  };
  auto of = [&](auto zero) {
    return args->head_dim == 64 ? with(zero, std::integral_constant<int, 64>{})
                                : with(zero, std::integral_constant<int, 128>{});
  };
  return args->dtype == FS_FLOAT16 ? of(__half{}) : of(__nv_bfloat16{});
}
