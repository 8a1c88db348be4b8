// The C interface between a kernel and its binding. Plain C types only: kernels never see torch, bindings never see a
// launch.
//
// A kernel is one file, cuda/<family>/v<N>_<idea>.cu (or cpu*.cpp). Its first comment line says its idea. It includes
// the family's header, which declares struct <Family>Args, and defines one function:
//
//     #include "add.cuh"
//     FUSESCOPE_KERNEL(const AddArgs* args, void* stream) { ...launch...; return nullptr; }
//
// The build passes FUSESCOPE_SYMBOL, made of family and file name, so the file's name is the implementation's name and
// a new file is found without being listed anywhere. The function returns nullptr when the work is queued on `stream`
// (a cudaStream_t; unused on the CPU), else a string literal: "unsupported: ..." when it does not take these
// arguments (say what it takes), anything else is an error (cudaGetErrorString's texts are fine). It never
// synchronises, never allocates device memory and never changes the current device.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
#define FUSESCOPE_KERNEL extern "C" __attribute__((visibility("default"))) const char* FUSESCOPE_SYMBOL
#endif

enum FusescopeDtype { FS_FLOAT32 = 0, FS_FLOAT16 = 1, FS_BFLOAT16 = 2 };
