// A linear layer: out = activation(x weight^T + bias) + residual, products summed in fp32.
//
// cuBLASLt's epilogue computes (`fused`) the bias; the residual where there is no activation; GELU with tanh in 16 bits
// where there is no residual. Its GELU is the form with tanh: GELU with erf and all else are one elementwise pass of
// ours over the result (finish.cuh).
#pragma once
#include "../common/interface.h"

enum LinearActivation {
  LINEAR_NONE = 0,
  LINEAR_GELU_ERF = 1,
  LINEAR_GELU_TANH = 2,
  LINEAR_SWIGLU = 3  // of a weight whose first half are the gate's rows: rows x outputs / 2 results, no residual
};
enum LinearRequest { LINEAR_RUN = 0, LINEAR_LIST = 1 };
enum { LINEAR_OWN = -1 };  // the count of algorithms of a kernel that does not compute by cuBLASLt

// One of cuBLASLt's algorithms (cublasLtMatmulAlgo_t, good for one version of the library) and the workspace it needs,
// in bytes.
struct LinearAlgorithm {
  uint64_t data[8];
  int64_t workspace;
};

struct LinearArgs {
  const void* x;  // row r begins at x[r * x_row]; its `terms` elements are contiguous
  // (outputs, terms): row n begins at weight[n * weight_row]; transposed: column k begins at weight[k * weight_row]
  const void* weight;
  const void* bias;      // `outputs` elements, or nullptr
  const void* residual;  // row r begins at residual[r * residual_row], or nullptr
  void* out;             // rows x outputs elements (SwiGLU: outputs / 2), dense, never aliasing an input
  void* workspace;       // at least what the algorithm needs
  int64_t workspace_bytes;
  int64_t rows, outputs, terms;  // >= 1
  int64_t x_row, weight_row, residual_row;
  int32_t transposed;
  int32_t activation;  // LinearActivation
  int32_t fused;       // 0: the product alone by cuBLASLt, all else in our pass
  int32_t dtype;       // FusescopeDtype of all of them
  int32_t settled;  // the kernel before this one on the stream writes neither weight nor bias: they may be read before
                    // it ends
  int32_t request;  // LinearRequest: compute, or list algorithms (pointers are looked at for their alignment only)
  const LinearAlgorithm* first;     // what cuBLASLt's heuristics name first; not nullptr when computing by it
  const LinearAlgorithm* measured;  // what measurement found fastest, or nullptr
  LinearAlgorithm* list;            // room for `most` algorithms, best guess first; `count` receives how many there are
  int32_t most;
  int32_t* count;
};

// What the product's epilogue computes; the rest is our pass.
struct LinearEpilogue {
  bool bias, residual, gelu;
};
inline LinearEpilogue linear_epilogue(const LinearArgs& args) {
  const bool tanh =
      args.activation == LINEAR_GELU_TANH && args.dtype != FS_FLOAT32;  // fp32 keeps its accuracy in our pass
  return {args.fused && args.bias, args.fused && args.residual && args.activation == LINEAR_NONE,
          args.fused && tanh && !args.residual};
}

// What our pass over the result computes, if anything.
struct LinearRest {
  const void* bias;
  const void* residual;
  int32_t activation;
  bool any() const { return bias || residual || activation; }
};
inline LinearRest linear_rest(const LinearArgs& args) {
  const LinearEpilogue done = linear_epilogue(args);
  return {done.bias ? nullptr : args.bias, done.residual ? nullptr : args.residual,
          done.gelu ? LINEAR_NONE : args.activation};
}
