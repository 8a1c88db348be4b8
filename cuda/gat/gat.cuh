// Graph attention (GAT): edge scores, softmax over the neighbours and the weighted sum of their features, in one pass.
//
//   e[i, j, h] = LeakyReLU(left[h] . x[i, h] + right[h] . x[j, h])      for every neighbour j of node i
//   out[i, h]  = sum over j of softmax over j (e[i, j, h]) x[j, h]      zeros where a node has no neighbour
//
// with one graph in CSR that all heads share (Velickovic et al., Graph Attention Networks, 2018, without its dropout).
// Sums are fp32.
#pragma once
#include "../common/interface.h"

struct GatArgs {
  const void* x;      // (nodes, heads, features), features side by side
  const void* left;   // (heads, features), dense
  const void* right;  // (heads, features), dense
  void* out;          // (nodes, heads, features), dense
  int64_t x_step[2];  // in elements: node, head
  const int32_t*
      row_offsets;  // nodes + 1: the neighbours of i are columns[row_offsets[i]] ... columns[row_offsets[i + 1] - 1]
  const int32_t* columns;
  const int32_t* order;  // nodes: every node once, those with the most neighbours first
  int64_t nodes, heads;  // >= 1
  int32_t features;      // 1 to 256
  float slope;           // of LeakyReLU below zero
  int32_t dtype;         // FusescopeDtype of x, left, right and out
};
