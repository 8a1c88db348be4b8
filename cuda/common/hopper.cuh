// Hopper's own instructions (sm_90a), as thin wrappers.
//
// A tile here is 64 rows of 64 16-bit elements: 128 bytes a row, stored with the 128-byte swizzle (chunk c of row r
// lies at chunk c ^ (r % 8)), 8192 bytes in all, 1024-byte aligned. TMA writes it so, wgmma reads it so.
#pragma once
#include "hopper_barrier.cuh"
#include "hopper_tensor_map.cuh"
#include "hopper_tma.cuh"
#include "hopper_wgmma.cuh"

namespace hopper {
constexpr int kTileBytes = 64 * 64 * 2;
}  // namespace hopper
