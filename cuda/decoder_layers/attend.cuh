// Attention of the new token of every sequence, whose key and value go into the caches here.
//
// A unit is one query head of one row over one split of its keys, and a block's: heads that share keys and values find
// them in the L2 cache, and a unit for all of them would take as many times as long. Warps take the keys in turn,
// HeadDim / 8 lanes each, with 16 bytes of the key and of the value. The new key is the last split's, from shared
// memory.
#pragma once
#include "../common/exp2.cuh"
#include "../common/reduce.cuh"
#include "step.cuh"

namespace decoder {

template <typename T, int HeadDim> class Attention {
  static constexpr int LANES = HeadDim / 8, KEYS = 32 / LANES;  // of a key; at once in a warp
  static constexpr int AHEAD = 4;                               // times KEYS, requested together
  static constexpr int EACH = HeadDim / 32;                     // elements of a head in a lane that prepares it
  static constexpr int STEP = WARPS * KEYS;                     // keys at once in a block

 public:
  struct Shared {
    float query[HeadDim];       // turned, times the scale
    float sum[WARPS][HeadDim];  // before there are sums: what a warp turns
    T key[HeadDim], value[HeadDim];
    float2 size[WARPS];
  };
  static_assert(sizeof(Shared) <= SCRATCH);

  // place: of each row's new key, -1: none; used: splits of each row.
  __device__ __forceinline__ Attention(const Step& step, void* scratch, const int* place, const int* used)
      : s_(step), shared_(*static_cast<Shared*>(scratch)), place_(place), used_(used) {
    find(blockIdx.x);
  }

  // Asks for the keys and values of this block's first unit, by `of` threads, this one the `thread`th: into the L2
  // cache.
  __device__ __forceinline__ void prefetch_keys(const DecoderLayer& layer, int thread, int of) {
    constexpr int lines = HeadDim * 2 / 128;
#pragma unroll 1
    for (int i = thread; i < (end_ - begin_) * lines; i += of) {
      const int64_t at = address_of(begin_ + i / lines) + i % lines * 64;
      prefetch(static_cast<const T*>(layer.k_cache) + at);
      prefetch(static_cast<const T*>(layer.v_cache) + at);
    }
  }

  // qkv: of this layer; the sums go to context and sizes.
  __device__ __forceinline__ void run(const DecoderLayer& layer, const T* qkv, float* context, float* sizes) {
#pragma unroll 1
    for (int unit = blockIdx.x; unit < s_.units; unit += gridDim.x) {
      if (s_.units > int(gridDim.x)) find(unit);
      if (head_ < 0) continue;
      load<true>(layer, first_key());  // before what the queries are made of is there
      load<false>(layer, first_key());
      sync_consumers();  // nobody needs the scratch any more
      prepare_heads(layer, qkv);
      attend(layer);
      join(context, sizes);
    }
  }

 private:
  // What a unit is; no head where there is none, or its split is not used.
  __device__ __forceinline__ void find(int unit) {
    head_ = -1, begin_ = end_ = 0;
    if (unit >= s_.units) return;
    split_ = unit % s_.splits, unit /= s_.splits;
    row_ = s_.heads_of.quotient(unit);
    const int head = unit - row_ * s_.heads, group = s_.heads / s_.kv_heads;
    const int used = used_[row_], keys = place_[row_] + 1, each = (keys + used - 1) / used;
    if (split_ >= used) return;
    head_ = head, kv_head_ = head / group, writes_ = head % group == 0;
    begin_ = split_ * each < keys ? split_ * each : keys;
    end_ = begin_ + each < keys ? begin_ + each : keys;
    base_ = row_ * s_.cache_step[0] + kv_head_ * s_.cache_step[1];
  }
  __device__ __forceinline__ int first_key() const {
    return begin_ + threadIdx.x / 32 * KEYS + threadIdx.x % 32 / LANES;
  }
  __device__ __forceinline__ int64_t address_of(int key) const { return base_ + key * s_.cache_step[2]; }
  // Whether the new key is among the unit's.
  __device__ __forceinline__ bool has_new() const { return begin_ < end_ && end_ == place_[row_] + 1; }
  template <bool Keys> __device__ __forceinline__ void load(const DecoderLayer& layer, int key) {
    const T* const cache = static_cast<const T*>(Keys ? layer.k_cache : layer.v_cache) + threadIdx.x % LANES * 8;
#pragma unroll
    for (int i = 0; i < AHEAD; ++i, key += STEP) {
      uint4& to = Keys ? k_[i] : v_[i];
      to = {0, 0, 0, 0};
      if (key < end_) to = *reinterpret_cast<const uint4*>(cache + address_of(key));
    }
  }

  // The unit's query, and where they are among its keys the new key and value, into shared memory and the caches: each
  // by a warp, of which a lane has EACH neighbouring elements of a head of the packed product.
  __device__ __forceinline__ void prepare_heads(const DecoderLayer& layer, const T* qkv) {
    const int first = threadIdx.x % 32 * EACH, half = s_.rotary / 2, inner = s_.heads * HeadDim;
    float* const all = shared_.sum[threadIdx.x / 32];
    const int kind = threadIdx.x / 32;  // 0: the query, 1: the key, 2: the value
    if (kind < (has_new() ? 3 : 1)) {
      const int heads = kind == 0 ? head_ : s_.heads + kv_head_ + (kind == 2 ? s_.kv_heads : 0);
      const T* const norm = static_cast<const T*>(kind == 0 ? layer.q_norm : kind == 1 ? layer.k_norm : nullptr);
      const T* const from = qkv + row_ * (inner + 2 * s_.kv_heads * HeadDim) + heads * HeadDim + first;
      const bool turns = kind < 2 && first < s_.rotary;
      float v[EACH], cosine[EACH], sine[EACH], weight[EACH];  // asked for before the head is there
#pragma unroll
      for (int e = 0; e < EACH; ++e) {
        const int at = first + e;
        const float* const angles = s_.cos_sin + row_ * s_.rotary + (at < half ? at : at - half);
        cosine[e] = turns ? angles[0] : 1.0f;
        sine[e] = turns ? angles[half] : 0.0f;
        if (at < half) sine[e] = -sine[e];
        weight[e] = norm ? to_float(norm[at]) : 1.0f;
      }
      uint32_t words[EACH / 2];
      for (;;) {
        cooperative::load_relaxed(words, from);
        if (cooperative::is_written<16>(words)) break;
        cooperative::before_retry();
      }
#pragma unroll
      for (int e = 0; e < EACH; ++e) v[e] = to_float(reinterpret_cast<const T*>(words)[e]);
      if (norm) {
        float squares = 0.0f;
#pragma unroll
        for (int e = 0; e < EACH; ++e) squares += v[e] * v[e];
        const float scale = rsqrtf(warp_reduce<Sum>(squares) * (1.0f / HeadDim) + s_.eps);
#pragma unroll
        for (int e = 0; e < EACH; ++e) v[e] = rounded<T>(v[e] * scale * weight[e]);
      }
      __syncwarp();
#pragma unroll
      for (int e = 0; e < EACH; ++e) all[first + e] = v[e];
      __syncwarp();
#pragma unroll
      for (int e = 0; e < EACH; ++e) {
        const int at = first + e;
        if (turns) v[e] = rounded<T>(v[e] * cosine[e] + all[at < half ? at + half : at - half] * sine[e]);
        const T one = from_float<T>(v[e]);
        if (kind == 0) shared_.query[at] = v[e] * s_.scale;
        if (kind == 1) shared_.key[at] = one;
        if (kind == 2) shared_.value[at] = one;
        if (kind && writes_)
          static_cast<T*>(kind == 1 ? layer.k_cache : layer.v_cache)[address_of(end_ - 1) + at] = one;
      }
    }
    sync_consumers();
  }

  __device__ __forceinline__ void attend(const DecoderLayer& layer) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = lane % LANES * 8;
    const int fresh = has_new() ? end_ - 1 : -1;
    const float* const query = shared_.query + column;
    float q[8], largest = -INFINITY, weights = 0.0f, sum[8] = {};
#pragma unroll
    for (int e = 0; e < 8; ++e) q[e] = query[e];
    // The bound is the warp's: all its lanes take part in each sum.
    int key = first_key();
#pragma unroll 1
    for (int at = key - lane / LANES; at < end_; at += AHEAD * STEP, key += AHEAD * STEP) {
      float score[AHEAD], v[8];
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        if (key + i * STEP == fresh) {
          k_[i] = *reinterpret_cast<const uint4*>(shared_.key + column);
          v_[i] = *reinterpret_cast<const uint4*>(shared_.value + column);
        }
        widen<T>(v, k_[i]);
        score[i] = 0.0f;
#pragma unroll
        for (int e = 0; e < 8; ++e) score[i] += q[e] * v[e];
      }
      load<true>(layer, key + AHEAD * STEP);
#pragma unroll
      for (int distance = LANES / 2; distance > 0; distance /= 2)
#pragma unroll
        for (int i = 0; i < AHEAD; ++i) score[i] += __shfl_xor_sync(0xffffffffu, score[i], distance);
      float more = largest;
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        if (key + i * STEP >= end_) score[i] = -INFINITY;
        more = fmaxf(more, score[i]);
      }
      const float from = more == -INFINITY ? 0.0f : more, scale = exp2_approx(largest - from);
      largest = more, weights *= scale;
#pragma unroll
      for (int e = 0; e < 8; ++e) sum[e] *= scale;
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        const float weight = exp2_approx(score[i] - from);  // of what is outside 0, and its value is 0
        widen<T>(v, v_[i]);
        weights += weight;
#pragma unroll
        for (int e = 0; e < 8; ++e) sum[e] += weight * v[e];
      }
      load<false>(layer, key + AHEAD * STEP);
    }
    // Of the keys of a warp.
    float more = largest;
#pragma unroll
    for (int distance = LANES; distance < 32; distance *= 2)
      more = fmaxf(more, __shfl_xor_sync(0xffffffffu, more, distance));
    const float scale = more == -INFINITY ? 0.0f : exp2_approx(largest - more);
    weights *= scale;
#pragma unroll
    for (int e = 0; e < 8; ++e) sum[e] *= scale;
#pragma unroll
    for (int distance = LANES; distance < 32; distance *= 2) {
      weights += __shfl_xor_sync(0xffffffffu, weights, distance);
#pragma unroll
      for (int e = 0; e < 8; ++e) sum[e] += __shfl_xor_sync(0xffffffffu, sum[e], distance);
    }
    if (lane < LANES) {
      *reinterpret_cast<float4*>(shared_.sum[warp] + column) = make_float4(sum[0], sum[1], sum[2], sum[3]);
      *reinterpret_cast<float4*>(shared_.sum[warp] + column + 4) = make_float4(sum[4], sum[5], sum[6], sum[7]);
    }
    if (lane == 0) shared_.size[warp] = make_float2(more, weights);
    sync_consumers();
  }

  // Of all warps, to the other blocks.
  __device__ __forceinline__ void join(float* context, float* sizes) {
    const int d = threadIdx.x, to = (row_ * s_.heads + head_) * s_.splits + split_;
    if (d >= HeadDim) return;
    float2 size[WARPS];
    float part[WARPS], largest = -INFINITY, weights = 0.0f, sum = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      size[w] = shared_.size[w], part[w] = shared_.sum[w][d];
      largest = fmaxf(largest, size[w].x);
    }
    const float from = largest == -INFINITY ? 0.0f : largest;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const float by = exp2_approx(size[w].x - from);
      weights += by * size[w].y;
      sum += by * part[w];
    }
    if (place_[row_] < 0) sum = NAN;
    cooperative::publish(context + to * HeadDim + d, sum);
    if (d == 0) {
      cooperative::publish(sizes + to * 2, largest);
      cooperative::publish(sizes + to * 2 + 1, weights);
    }
  }

  const Step& s_;
  Shared& shared_;
  const int *place_, *used_;
  int64_t base_ = 0;  // of the unit's keys in a cache
  int split_ = 0, kv_head_ = 0, row_ = 0, head_ = -1, begin_ = 0, end_ = 0;
  bool writes_ = false;
  uint4 k_[AHEAD], v_[AHEAD];
};

}  // namespace decoder
