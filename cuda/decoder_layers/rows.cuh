// The rows that a product multiplies, in every block's shared memory: as they are, normed, or joined from attention's
// splits.
//
// Little is unrolled here and in the other phases: a layer passes each instruction once or a few times, and what does
// not stay in the instruction cache costs more than the loop.
#pragma once
#include "../common/exp2.cuh"
#include "../common/mma.cuh"
#include "../common/reciprocal.cuh"
#include "../common/reduce.cuh"
#include "step.cuh"

namespace decoder {

// in: rows of `row` x 8 elements, dense, `eights` x 8 in all. published: by other blocks in this launch.
template <typename T> __device__ __forceinline__ void fetch_rows(T* to, const T* in, bool published, int eights,
                                                                 const Divisor& row_of, int row, int pitch) {
  constexpr int at_once = 4;
#pragma unroll 1
  for (int begin = threadIdx.x; begin < eights; begin += at_once * THREADS) {
    uint32_t v[at_once][4];
    for (bool all = false; !all;) {
      all = true;
#pragma unroll
      for (int i = 0; i < at_once; ++i)
        if (i == 0 || begin + i * THREADS < eights) cooperative::load_relaxed(v[i], in + (begin + i * THREADS) * 8);
#pragma unroll
      for (int i = 0; i < at_once; ++i)
        if (i == 0 || begin + i * THREADS < eights) all = all && cooperative::is_written<16>(v[i]);
      all = all || !published;
      if (!all) cooperative::before_retry();
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int at = begin + i * THREADS, r = row_of.quotient(at);
      if (i == 0 || at < eights)
        *reinterpret_cast<uint4*>(to + r * pitch + (at - r * row) * 8) = {v[i][0], v[i][1], v[i][2], v[i][3]};
    }
  }
  sync_consumers();
}

// Warps that share a row in norm_rows, as a power of two.
__device__ __host__ __forceinline__ int log_warps_of_row(int rows) {
  return rows == 1 ? 3 : rows == 2 ? 2 : rows <= 4 ? 1 : 0;
}
static_assert(WARPS == 8);

// Norms rows where they lie: LayerNorm where there is a bias, else RMSNorm. A warp takes the mean of what it has, and
// the squares of what that is off it; those of a row are put together as by Chan et al. (1983,
// doi:10.1080/00031305.1983.10483115), so that no large mean is squared. moments: WARPS of shared memory.
template <typename T> class Norm {
 public:
  // Asks for what does not depend on the rows.
  __device__ __forceinline__ Norm(const Step& s, const T* weight, const T* bias)
      : s_(s), weight_(weight), bias_(bias), log_(log_warps_of_row(s.rows)) {
    const int warp = threadIdx.x / 32 & ((1 << log_) - 1);
    first_ = warp * 256, begin_ = first_ + threadIdx.x % 32 * 8, step_ = 256 << log_;
    r_ = threadIdx.x / 32 >> log_, end_ = r_ < s.rows ? s.width : 0;
    for (int at = first_; at < end_; at += step_) count_ += end_ - at < 256 ? end_ - at : 256;
    inverse_ = reciprocal_approx(fmaxf(count_, 1.0f));
    if (begin_ >= end_) return;
    by_ = *reinterpret_cast<const uint4*>(weight_ + begin_);
    if (bias_) plus_ = *reinterpret_cast<const uint4*>(bias_ + begin_);
  }

  __device__ __forceinline__ void run(T* rows, int pitch, float4* moments) {
    T* const row = rows + r_ * pitch;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float own[8] = {}, v[8], mean = 0.0f, squares = 0.0f;  // own: the first that this thread has, most often all
    if (begin_ < end_) widen<T>(own, *reinterpret_cast<const uint4*>(row + begin_));
    auto sum_of = [](const float (&u)[8]) { return ((u[0] + u[1]) + (u[2] + u[3])) + ((u[4] + u[5]) + (u[6] + u[7])); };
    auto off = [&](const float (&u)[8]) {
      float sum = 0.0f;
#pragma unroll
      for (int e = 0; e < 8; ++e) sum += (u[e] - mean) * (u[e] - mean);
      return sum;
    };
    if (bias_) {
      mean = sum_of(own);
#pragma unroll 1
      for (int at = begin_ + step_; at < end_; at += step_) {
        widen<T>(v, *reinterpret_cast<const uint4*>(row + at));
        mean += sum_of(v);
      }
      mean = warp_reduce<Sum>(mean) * inverse_;
    }
    if (begin_ < end_) squares = off(own);
#pragma unroll 1
    for (int at = begin_ + step_; at < end_; at += step_) {
      widen<T>(v, *reinterpret_cast<const uint4*>(row + at));
      squares += off(v);
    }
    squares = warp_reduce<Sum>(squares);
    if (log_) {
      if (lane == 0) moments[warp] = make_float4(mean, squares, count_, 0.0f);
      sync_consumers();
      const float4 of = moments[(warp >> log_ << log_) + (lane & ((1 << log_) - 1))];
      auto sum = [&](float u) {
        for (int distance = 1; distance < 1 << log_; distance *= 2) u += __shfl_xor_sync(0xffffffffu, u, distance);
        return u;
      };
      if (bias_) mean = sum(of.x * of.z) * s_.inverse_width;
      squares = sum(of.y + (bias_ ? of.z * (of.x - mean) * (of.x - mean) : 0.0f));
    }
    const float scale = rsqrtf(squares * s_.inverse_width + s_.eps);
    auto write = [&](int at, float (&u)[8]) {
      float w[8], b[8] = {};
      widen<T>(w, by_);
      if (bias_) widen<T>(b, plus_);
#pragma unroll
      for (int e = 0; e < 8; ++e) u[e] = (u[e] - mean) * scale * w[e] + b[e];
      *reinterpret_cast<uint4*>(row + at) = narrow<T>(u);
    };
    if (begin_ < end_) write(begin_, own);
#pragma unroll 1
    for (int at = begin_ + step_; at < end_; at += step_) {
      widen<T>(v, *reinterpret_cast<const uint4*>(row + at));
      by_ = *reinterpret_cast<const uint4*>(weight_ + at);
      if (bias_) plus_ = *reinterpret_cast<const uint4*>(bias_ + at);
      write(at, v);
    }
    sync_consumers();
  }

 private:
  const Step& s_;
  const T *weight_, *bias_;
  int log_, r_, first_, begin_, step_, end_;
  float count_ = 0.0f, inverse_;  // of what this warp has
  uint4 by_{}, plus_{};
};

// The context of every row and head from the splits of its keys; context, sizes: of this layer, used: splits of each
// row.
template <typename T, int HeadDim> __device__ __forceinline__ void join_splits(T* to, int pitch, const Step& s,
                                                                               const float* context, const float* sizes,
                                                                               const int* used) {
  constexpr int fours = HeadDim / 4, at_once = 4;  // past the last split the first again
#pragma unroll 1
  for (int at = threadIdx.x; at < s.rows * s.heads * fours; at += THREADS) {
    const int head = at / fours, r = s.heads_of.quotient(head), splits = used[r];
    const float* const size = sizes + head * s.splits * 2;
    const float* const sums = context + head * s.splits * HeadDim + at % fours * 4;
    float largest = -INFINITY, total = 0.0f, sum[4] = {};
#pragma unroll 1
    for (int first = 0; first < splits; first += at_once) {
      uint32_t of[at_once][2], part[at_once][4];
      for (bool all = false; !all;) {
        all = true;
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
          const int split = first + i < splits ? first + i : first;
          cooperative::load_relaxed(of[i], size + split * 2);
          cooperative::load_relaxed(part[i], sums + split * HeadDim);
        }
#pragma unroll
        for (int i = 0; i < at_once; ++i)
          all = all && cooperative::is_written<32>(of[i]) && cooperative::is_written<32>(part[i]);
        if (!all) cooperative::before_retry();
      }
      float more = largest;
#pragma unroll
      for (int i = 0; i < at_once; ++i) more = fmaxf(more, __uint_as_float(of[i][0]));
      const float scale = exp2_approx(largest - more);
      largest = more, total *= scale;
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[e] *= scale;
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const float by = first + i < splits ? exp2_approx(__uint_as_float(of[i][0]) - largest) : 0.0f;
        total += by * __uint_as_float(of[i][1]);
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[e] += by * __uint_as_float(part[i][e]);
      }
    }
    total = reciprocal_approx(total);
    uint2 four;
    four.x = tensor_core::pack<T>(sum[0] * total, sum[1] * total);
    four.y = tensor_core::pack<T>(sum[2] * total, sum[3] * total);
    *reinterpret_cast<uint2*>(to + r * pitch + (head - r * s.heads) * HeadDim + at % fours * 4) = four;
  }
  sync_consumers();
}

}  // namespace decoder
