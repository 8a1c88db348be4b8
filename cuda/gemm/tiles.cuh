// How a grid of blocks covers the tiles of C, for one product or a batch of them.
#pragma once
#include <stdint.h>

#include "gemm.cuh"

// Blocks are numbered along x through all tiles of all matrices. Within a matrix they go down groups of eight tile
// rows, column by column, so that blocks running at the same time share rows of A and columns of B in the L2 cache.
struct TileGrid {
  int64_t rows, cols;  // tiles of one matrix

  __host__ __device__ int64_t tiles() const { return rows * cols; }

  __device__ void locate(int64_t block, int64_t& matrix, int64_t& row, int64_t& col) const {
    constexpr int64_t group = 8;
    matrix = block / tiles();
    const int64_t tile = block % tiles(), first = tile / (group * cols) * group;
    const int64_t height = rows - first < group ? rows - first : group, within = tile - first * cols;
    row = first + within % height;
    col = within / height;
  }
};

inline TileGrid tile_grid(const GemmArgs& g, int tile_m, int tile_n) {
  return {(g.m + tile_m - 1) / tile_m, (g.n + tile_n - 1) / tile_n};
}

// The batch of a plain product: one matrix, at the start of the operands.
struct OneMatrix {
  __host__ __device__ int64_t count() const { return 1; }
  __device__ void offsets(int64_t, int64_t& a, int64_t& b) const { a = b = 0; }
  bool multiples_of(int) const { return true; }
};

constexpr int64_t MOST_BLOCKS = INT32_MAX;
