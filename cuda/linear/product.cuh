// One product by cuBLASLt with its epilogue, and the list of algorithms for it: what v1_heuristic and v2_measured
// share.
#pragma once
#include <mutex>

#include "../common/device.cuh"
#include "cublaslt.h"
#include "finish.cuh"
#include "linear.cuh"

namespace {
constexpr size_t MOST_WORKSPACE = size_t(32) << 20;

// RAII: allows this thread calls that a stream capture elsewhere would forbid.
struct RelaxedCapture {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode); }
};

// The handle of the current device, made on first use.
inline const char* handle_of_device(cublaslt::Handle* handle) {
  constexpr int most = 64;
  static cublaslt::Handle known[most];
  static std::mutex guard;
  const cublaslt::Library& lt = cublaslt::library();
  if (!lt.good) return "unsupported: libcublasLt was not found (it comes with a CUDA build of torch)";
  const int device = current_device();
  if (device >= most) return "unsupported: more than 64 devices";
  std::lock_guard<std::mutex> hold(guard);
  if (!known[device]) {
    RelaxedCapture relaxed;
    if (const int status = lt.create(&known[device])) return lt.status(status);
  }
  *handle = known[device];
  return nullptr;
}

// The descriptors of a product. cuBLASLt's matrices are column-major: what it computes is out^T = weight x^T, where a
// row-major matrix in memory is its transpose.
struct Problem {
  const cublaslt::Library& lt = cublaslt::library();
  cublaslt::Desc desc = nullptr;
  cublaslt::Layout weight = nullptr, x = nullptr, residual = nullptr, out = nullptr;
  int status = 0;

  explicit Problem(const LinearArgs& args) {
    const int type =
        args.dtype == FS_FLOAT32 ? cublaslt::R_32F : (args.dtype == FS_FLOAT16 ? cublaslt::R_16F : cublaslt::R_16BF);
    const LinearEpilogue does = linear_epilogue(args);
    keep(lt.desc_create(&desc, cublaslt::COMPUTE_32F, cublaslt::R_32F));
    const int32_t turn = args.transposed ? cublaslt::OP_N : cublaslt::OP_T, straight = cublaslt::OP_N;
    set(cublaslt::DESC_TRANSA, turn);
    set(cublaslt::DESC_TRANSB, straight);
    int32_t epilogue = (does.bias ? cublaslt::EPILOGUE_BIAS : 0) | (does.gelu ? cublaslt::EPILOGUE_GELU : 0);
    if (!epilogue) epilogue = cublaslt::EPILOGUE_DEFAULT;
    set(cublaslt::DESC_EPILOGUE, epilogue);
    if (does.bias) set(cublaslt::DESC_BIAS_POINTER, args.bias);
    if (args.transposed)
      keep(lt.layout_create(&weight, type, args.outputs, args.terms, args.weight_row));
    else
      keep(lt.layout_create(&weight, type, args.terms, args.outputs, args.weight_row));
    keep(lt.layout_create(&x, type, args.terms, args.rows, args.x_row));
    keep(lt.layout_create(&residual, type, args.outputs, args.rows, does.residual ? args.residual_row : args.outputs));
    keep(lt.layout_create(&out, type, args.outputs, args.rows, args.outputs));
  }
  Problem(const Problem&) = delete;
  ~Problem() {
    if (out) lt.layout_destroy(out);
    if (residual) lt.layout_destroy(residual);
    if (x) lt.layout_destroy(x);
    if (weight) lt.layout_destroy(weight);
    if (desc) lt.desc_destroy(desc);
  }
  void keep(int got) { status = status ? status : got; }
  template <typename T> void set(int attribute, const T& value) {
    if (!status) keep(lt.desc_set(desc, attribute, &value, sizeof value));
  }
};

// What an address is a multiple of, up to 16 bytes.
inline uint32_t alignment(const void* p) {
  uint32_t bytes = 16;
  while (!aligned(p, int(bytes))) bytes /= 2;
  return bytes;
}

inline const char* list(const LinearArgs& args) {
  cublaslt::Handle handle = nullptr;
  if (const char* reason = handle_of_device(&handle)) return reason;
  RelaxedCapture relaxed;
  const cublaslt::Library& lt = cublaslt::library();
  Problem problem(args);
  if (problem.status) return lt.status(problem.status);
  cublaslt::Preference wish = nullptr;
  if (const int status = lt.preference_create(&wish)) return lt.status(status);
  int status = 0;
  auto prefer = [&](int attribute, auto value) {
    status = status ? status : lt.preference_set(wish, attribute, &value, sizeof value);
  };
  const LinearEpilogue does = linear_epilogue(args);
  const uint32_t to = alignment(args.out), bias = does.bias ? alignment(args.bias) : 16;
  prefer(cublaslt::PREF_MAX_WORKSPACE_BYTES, uint64_t(MOST_WORKSPACE));
  prefer(cublaslt::PREF_REDUCTION_SCHEME_MASK, uint32_t(cublaslt::REDUCTION_COMPUTE_TYPE));
  prefer(cublaslt::PREF_MIN_ALIGNMENT_A_BYTES, alignment(args.weight));
  prefer(cublaslt::PREF_MIN_ALIGNMENT_B_BYTES, alignment(args.x));
  prefer(cublaslt::PREF_MIN_ALIGNMENT_C_BYTES, does.residual ? alignment(args.residual) : to);
  prefer(cublaslt::PREF_MIN_ALIGNMENT_D_BYTES, to < bias ? to : bias);
  constexpr int room = 64;
  cublaslt::HeuristicResult results[room] = {};
  int found = 0;
  if (!status)
    status = lt.heuristic(handle, problem.desc, problem.weight, problem.x, problem.residual, problem.out, wish,
                          args.most < room ? args.most : room, results, &found);
  lt.preference_destroy(wish);
  *args.count = 0;
  if (status == cublaslt::NOT_SUPPORTED) return nullptr;  // none, which is an answer
  if (status) return lt.status(status);
  for (int i = 0; i < found; ++i) {
    if (results[i].state) continue;
    LinearAlgorithm& next = args.list[(*args.count)++];
    for (int j = 0; j < 8; ++j) next.data[j] = results[i].algo.data[j];
    next.workspace = int64_t(results[i].workspace);
  }
  return nullptr;
}

inline const char* compute(const LinearArgs& args, const LinearAlgorithm& by, void* stream) {
  cublaslt::Handle handle = nullptr;
  if (const char* reason = handle_of_device(&handle)) return reason;
  if (by.workspace > args.workspace_bytes) return "the workspace is smaller than the algorithm needs";
  const cublaslt::Library& lt = cublaslt::library();
  Problem problem(args);
  if (problem.status) return lt.status(problem.status);
  const float one = 1.0f, zero = 0.0f;
  const bool adds = linear_epilogue(args).residual;
  cublaslt::Algo algo;
  for (int j = 0; j < 8; ++j) algo.data[j] = by.data[j];
  int status = 0;
  {
    RelaxedCapture relaxed;  // a kernel that is launched for the first time is loaded now
    status = lt.matmul(handle, problem.desc, &one, args.weight, problem.weight, args.x, problem.x, adds ? &one : &zero,
                       adds ? args.residual : args.out, problem.residual, args.out, problem.out, &algo, args.workspace,
                       size_t(args.workspace_bytes), stream);
  }
  if (status) return lt.status(status);
  return finish(args, static_cast<cudaStream_t>(stream));
}
}  // namespace
