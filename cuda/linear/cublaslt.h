// The part of cuBLASLt that is used, declared here and found at run time in the library that torch has loaded: no
// header and no link of ours is needed, and a machine without CUDA loads the extension. Names and numbers are those of
// NVIDIA's cublasLt.h.
#pragma once
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <initializer_list>
#include <type_traits>

namespace cublaslt {

typedef void *Handle, *Desc, *Layout, *Preference;
struct Algo {
  uint64_t data[8];
};
struct HeuristicResult {
  Algo algo;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

enum { R_32F = 0, R_16F = 2, R_16BF = 14 };
enum { COMPUTE_32F = 68 };
enum { OP_N = 0, OP_T = 1 };
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, DESC_EPILOGUE = 7, DESC_BIAS_POINTER = 8 };
enum {
  EPILOGUE_DEFAULT = 1,
  EPILOGUE_BIAS = 4,
  EPILOGUE_GELU = 32
};  // a GELU with bias is both bits; DEFAULT is neither
enum {
  PREF_MAX_WORKSPACE_BYTES = 1,
  PREF_REDUCTION_SCHEME_MASK = 3,
  PREF_MIN_ALIGNMENT_A_BYTES = 5,
  PREF_MIN_ALIGNMENT_B_BYTES = 6,
  PREF_MIN_ALIGNMENT_C_BYTES = 7,
  PREF_MIN_ALIGNMENT_D_BYTES = 8
};
enum { REDUCTION_COMPUTE_TYPE = 2 };  // parts of a product that is split over k are added in fp32, never in 16 bits
enum { SUCCESS = 0, NOT_SUPPORTED = 15 };

struct Library {
  int (*create)(Handle*);
  int (*matmul)(Handle, Desc, const void* alpha, const void* a, Layout, const void* b, Layout, const void* beta,
                const void* c, Layout, void* d, Layout, const Algo*, void* workspace, size_t workspace_bytes,
                void* stream);
  int (*heuristic)(Handle, Desc, Layout a, Layout b, Layout c, Layout d, Preference, int wanted, HeuristicResult*,
                   int* found);
  int (*desc_create)(Desc*, int compute, int scale);
  int (*desc_destroy)(Desc);
  int (*desc_set)(Desc, int attribute, const void*, size_t);
  int (*layout_create)(Layout*, int type, uint64_t rows, uint64_t cols, int64_t ld);
  int (*layout_destroy)(Layout);
  int (*preference_create)(Preference*);
  int (*preference_destroy)(Preference);
  int (*preference_set)(Preference, int attribute, const void*, size_t);
  const char* (*status)(int);
  size_t (*version)();
  bool good = false;
};

// FUSESCOPE_CUBLASLT names another library. Looked for once a process.
inline const Library& library() {
  static const Library found = [] {
    Library lib;
    void* so = nullptr;
    if (const char* given = getenv("FUSESCOPE_CUBLASLT")) {
      so = dlopen(given, RTLD_LAZY | RTLD_LOCAL);
    } else {
      for (int mode : {RTLD_LAZY | RTLD_NOLOAD, RTLD_LAZY | RTLD_LOCAL})
        for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"})
          if (!so) so = dlopen(name, mode);
    }
    if (!so) return lib;
    bool all = true;
    auto get = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(so, name));
      all = all && function;
    };
    get(lib.create, "cublasLtCreate");
    get(lib.matmul, "cublasLtMatmul");
    get(lib.heuristic, "cublasLtMatmulAlgoGetHeuristic");
    get(lib.desc_create, "cublasLtMatmulDescCreate");
    get(lib.desc_destroy, "cublasLtMatmulDescDestroy");
    get(lib.desc_set, "cublasLtMatmulDescSetAttribute");
    get(lib.layout_create, "cublasLtMatrixLayoutCreate");
    get(lib.layout_destroy, "cublasLtMatrixLayoutDestroy");
    get(lib.preference_create, "cublasLtMatmulPreferenceCreate");
    get(lib.preference_destroy, "cublasLtMatmulPreferenceDestroy");
    get(lib.preference_set, "cublasLtMatmulPreferenceSetAttribute");
    get(lib.status, "cublasLtGetStatusString");
    get(lib.version, "cublasLtGetVersion");
    lib.good = all;
    return lib;
  }();
  return found;
}

}  // namespace cublaslt
