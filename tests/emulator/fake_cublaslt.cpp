// Stands in for cuBLASLt: the functions that cuda/linear uses, computed with plain loops on the CPU.
//
// It is as strict as the real one where that matters: dimensions and leading dimensions must fit, the workspace must be
// as large as the algorithm said, products of 16-bit numbers with odd sizes have no algorithm with an epilogue. It
// offers three algorithms, of which the second fails when it is run.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {
enum { OK = 0, INVALID = 7, FAILED = 13, NOT_SUPPORTED = 15 };
struct Desc {
  int32_t trans[2] = {0, 0}, epilogue = 1;
  const void* bias = nullptr;
};
struct Layout {
  int type;
  int64_t rows, cols, ld;
};
struct Algo {
  uint64_t data[8];
};
struct Result {
  Algo algo;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reduction = 7, alignment[4] = {256, 256, 256, 256};
};
int last = -1;
constexpr size_t WORKSPACE[3] = {0, 64, 4096};

float get(const void* p, int type, int64_t i) {
  if (type == 0) return static_cast<const float*>(p)[i];
  const uint16_t bits = static_cast<const uint16_t*>(p)[i];
  if (type == 14) {
    const uint32_t wide = uint32_t(bits) << 16;
    float f;
    std::memcpy(&f, &wide, 4);
    return f;
  }
  _Float16 h;
  std::memcpy(&h, &bits, 2);
  return float(h);
}
void put(void* p, int type, int64_t i, float v) {
  if (type == 0) {
    static_cast<float*>(p)[i] = v;
    return;
  }
  uint16_t bits;
  if (type == 14) {
    uint32_t wide;
    std::memcpy(&wide, &v, 4);
    bits = uint16_t((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
  } else {
    const _Float16 h = _Float16(v);
    std::memcpy(&bits, &h, 2);
  }
  static_cast<uint16_t*>(p)[i] = bits;
}
bool fits(const Desc& d, const Layout& a, const Layout& b, const Layout& c, const Layout& out) {
  const int64_t m = d.trans[0] ? a.cols : a.rows, k = d.trans[0] ? a.rows : a.cols, n = d.trans[1] ? b.rows : b.cols;
  for (const Layout& l : {a, b, c, out})
    if (l.ld < l.rows || l.type != a.type) return false;
  return k == (d.trans[1] ? b.cols : b.rows) && out.rows == m && out.cols == n && c.rows == m && c.cols == n;
}
}  // namespace

extern "C" {
int fake_last_algorithm() { return last; }
int cublasLtCreate(void** handle) { return *handle = new int(1), OK; }
size_t cublasLtGetVersion() { return 130000; }
const char* cublasLtGetStatusString(int status) {
  return status == FAILED ? "the product failed" : "a value is not valid";
}
int cublasLtMatmulDescCreate(Desc** d, int compute, int scale) {
  return *d = new Desc, compute == 68 && scale == 0 ? OK : INVALID;
}
int cublasLtMatmulDescDestroy(Desc* d) { return delete d, OK; }
int cublasLtMatmulDescSetAttribute(Desc* d, int attribute, const void* value, size_t size) {
  if ((attribute == 3 || attribute == 4) && size == 4) return std::memcpy(&d->trans[attribute - 3], value, 4), OK;
  if (attribute == 7 && size == 4) return std::memcpy(&d->epilogue, value, 4), OK;
  if (attribute == 8 && size == 8) return std::memcpy(&d->bias, value, 8), OK;
  return INVALID;
}
int cublasLtMatrixLayoutCreate(Layout** l, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  return *l = new Layout{type, int64_t(rows), int64_t(cols), ld}, OK;
}
int cublasLtMatrixLayoutDestroy(Layout* l) { return delete l, OK; }
int cublasLtMatmulPreferenceCreate(Preference** p) { return *p = new Preference, OK; }
int cublasLtMatmulPreferenceDestroy(Preference* p) { return delete p, OK; }
int cublasLtMatmulPreferenceSetAttribute(Preference* p, int attribute, const void* value, size_t size) {
  if (attribute == 1 && size == 8) return std::memcpy(&p->workspace, value, 8), OK;
  if (attribute == 3 && size == 4) return std::memcpy(&p->reduction, value, 4), OK;
  if (attribute >= 5 && attribute <= 8 && size == 4) return std::memcpy(&p->alignment[attribute - 5], value, 4), OK;
  return INVALID;
}
int cublasLtMatmulAlgoGetHeuristic(void*, Desc* d, Layout* a, Layout* b, Layout* c, Layout* out, Preference* p,
                                   int wanted, Result* results, int* found) {
  *found = 0;
  if (wanted < 1 || !fits(*d, *a, *b, *c, *out)) return INVALID;
  if (p->reduction & 5) return INVALID;  // sums in 16 bits were not wanted
  if (a->type != 0 && d->epilogue != 1 && (out->rows % 8 || a->rows % 8)) return NOT_SUPPORTED;
  for (int i = 0; i < 3 && i < wanted; ++i)
    if (WORKSPACE[i] <= p->workspace) results[(*found)++] = {{{uint64_t(i), 42}}, WORKSPACE[i], OK, 1.0f, {}};
  return OK;
}
int cublasLtMatmul(void*, Desc* d, const float* alpha, const void* a, Layout* la, const void* b, Layout* lb,
                   const float* beta, const void* c, Layout* lc, void* out, Layout* lo, const Algo* algo,
                   void* workspace, size_t bytes, void*) {
  if (!fits(*d, *la, *lb, *lc, *lo) || algo->data[1] != 42 || algo->data[0] > 2) return INVALID;
  if (bytes < WORKSPACE[algo->data[0]] || (bytes && !workspace)) return INVALID;
  if (algo->data[0] == 1) return FAILED;
  last = int(algo->data[0]);
  const int64_t k = d->trans[0] ? la->rows : la->cols;
  for (int64_t i = 0; i < lo->rows; ++i)
    for (int64_t j = 0; j < lo->cols; ++j) {
      float sum = 0.0f;
      for (int64_t t = 0; t < k; ++t)
        sum += get(a, la->type, d->trans[0] ? i * la->ld + t : t * la->ld + i) *
               get(b, lb->type, d->trans[1] ? t * lb->ld + j : j * lb->ld + t);
      float v = *alpha * sum + (*beta ? *beta * get(c, lc->type, j * lc->ld + i) : 0.0f);
      if (d->epilogue & 4) v += get(d->bias, lo->type, i);
      if (d->epilogue & 32) v = 0.5f * v * (1.0f + std::tanh(0.7978845608f * (v + 0.044715f * v * v * v)));
      put(out, lo->type, j * lo->ld + i, v);
    }
  return OK;
}
}
