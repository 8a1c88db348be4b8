// What a lane adds to its scores after soft-capping: ALiBi's slope (key - position), and a bias.
//
// Scores are then in natural units, in which a bias near the end of fp32's range stays finite; otherwise they are
// powers of 2. A bias is read before its unit of keys is waited for, so that the two loads overlap.
#pragma once
#include "../common/exp2.cuh"
#include "shares.cuh"

namespace decode {
// The units of scores. Biased: whether something is added to them.
template <bool Biased> struct Units {
  static constexpr float of_score = Biased ? 1.f : kLog2e;        // a score in natural units becomes one of these
  static constexpr float of_raise = Biased ? 8.f / kLog2e : 8.f;  // 2^8
  static __device__ __forceinline__ float weight(float score) { return exp2_approx(Biased ? score * kLog2e : score); }
};

// Whether a pack of structs holds one of type Wanted, and that one.
template <typename Wanted, typename... Given> constexpr bool holds = (std::is_same_v<Given, Wanted> || ...);
template <typename Wanted, typename First, typename... Rest>
__host__ __device__ __forceinline__ const Wanted& of_type(const First& first, const Rest&... rest) {
  if constexpr (std::is_same_v<First, Wanted>)
    return first;
  else
    return of_type<Wanted>(rest...);
}

// For scores to which nothing is added.
struct NothingAdded {
  template <typename... Given> __device__ explicit NothingAdded(const Given&...) {}
};

// For a lane with so many query rows, and so many keys of a unit.
template <typename T, int Rows, int Keys> struct AddedScores {
  const AttentionDecodeBias& given;
  float slope[Rows], bias[Rows][Keys];
  int64_t at[Rows];  // where a row's bias begins

  template <typename... Given> __device__ __forceinline__ explicit AddedScores(const Given&... call)
      : given(of_type<AttentionDecodeBias>(call...)), bias{} {}

  // The lane's row r is `row` of those of the KV head; one beyond them, which is not stored, reads what the last reads.
  __device__ __forceinline__ void begin(const AttentionDecodeArgs& a, const AttentionDecodeGeneral& g, int b,
                                        int head_kv, int r, int row) {
    if (row >= all_rows(a, g)) row = all_rows(a, g) - 1;
    const int head = head_kv * group_of(a) + row / g.tokens;
    slope[r] = given.slopes ? given.slopes[head] : 0.f;
    at[r] = b * given.stride[0] + head * given.stride[1] + row % g.tokens * given.stride[2];
  }

  // Reads the bias of the lane's key k of a unit.
  __device__ __forceinline__ void load(int r, int k, int key, bool seen) {
    if (!given.bias) return;
    const int64_t i = at[r] + key * given.stride[3];
    bias[r][k] = !seen                       ? 0.f
                 : given.dtype == FS_FLOAT32 ? static_cast<const float*>(given.bias)[i]
                                             : to_float(static_cast<const T*>(given.bias)[i]);
  }

  __device__ __forceinline__ bool masks(int r, int k) const { return bias[r][k] == -INFINITY; }

  // The score of key k with what is added to it; `distance` is the key less the row's position.
  __device__ __forceinline__ float to(float score, int r, int k, int distance) const {
    return masks(r, k) ? -INFINITY : score + fmaf(slope[r], float(distance), bias[r][k]);
  }

  // Whether the bias masks a key for any lane of the warp.
  __device__ __forceinline__ bool masks_some() const {
    if (!given.bias) return false;
    bool some = false;
#pragma unroll
    for (int r = 0; r < Rows; ++r)
#pragma unroll
      for (int k = 0; k < Keys; ++k) some = some || masks(r, k);
    return __any_sync(kAll, some);
  }
};
constexpr float kMasked = -1.f;  // a weight that add_to_seeing() takes for a masked key
}  // namespace decode
