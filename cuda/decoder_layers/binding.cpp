// All layers of a decoder for torch: fusescope::decoder_layers(Tensor x, Tensor[] weights, Tensor(a!)[] k_caches,
// Tensor(b!)[] v_caches, Tensor? cos_sin, Tensor places, int heads, int kv_heads, str activation, float eps, str impl)
// -> Tensor, of x's shape (rows, width) or (rows, 1, width).
//
// weights: kWeights a layer, in the order of DecoderLayer; a tensor without elements where there is none of it. All
// matrices of all layers are of one dtype: x's, or int8 or float8_e4m3fn with scales. Nothing is copied: what a kernel
// takes as dense must be contiguous. Everything is checked here, because the operator is called without checks in
// Python before it.
#include <cmath>

#include "../common/handle.h"
#include "decoder_layers.cuh"

namespace {
using namespace fusescope;

constexpr size_t kWeights = 18, kQkv = 2, kSecond = 12;
constexpr int64_t kAlignment = 256;  // of the workspace

int32_t activation_of(std::string_view name) {
  if (name == "gelu") return DECODER_GELU_ERF;
  if (name == "gelu_tanh") return DECODER_GELU_TANH;
  if (name == "swiglu") return DECODER_SWIGLU;
  STD_TORCH_CHECK(false, "activation is gelu, gelu_tanh or swiglu");
}

int32_t format_of(const Handle& matrix, const Handle& x) {
  const int32_t dtype = matrix.dtype();
  if (dtype == aoti_torch_dtype_int8()) return WEIGHT_INT8;
  if (dtype == aoti_torch_dtype_float8_e4m3fn()) return WEIGHT_E4M3;
  STD_TORCH_CHECK(dtype == x.dtype(), "a matrix of a layer is of x's dtype, int8 or float8_e4m3fn");
  return kDecoderAsX;
}

bool is_beside(const Handle& t, const Handle& x) {
  return t.device_type() == x.device_type() && t.device_index() == x.device_index();
}

bool is_alike(const Handle& t, const Handle& x) { return t.dtype() == x.dtype() && is_beside(t, x); }

// The weights of one layer, which are read in the order of DecoderLayer.
class Weights {
 public:
  // matrices: the dtype of all of them.
  Weights(const Handle* first, const Handle& x, int32_t matrices) : next_(first), x_(x), matrices_(matrices) {}

  const void* vector(const char* name, int64_t size) {
    STD_TORCH_CHECK(is_vector(size, x_.dtype()), name, " of a layer is a vector of ", size,
                    ", contiguous, of x's dtype and device");
    return (next_++)->data();
  }
  const void* optional_vector(const char* name, int64_t size) {
    return next_->numel() > 0 ? vector(name, size) : nothing();
  }
  const void* matrix(const char* name, int64_t outputs, int64_t terms) {
    STD_TORCH_CHECK(next_->dim() == 2 && next_->sizes()[0] == outputs && next_->sizes()[1] == terms &&
                        next_->contiguous() && next_->dtype() == matrices_ && is_beside(*next_, x_),
                    name, " of a layer is a matrix of ", outputs, " x ", terms,
                    ", contiguous, on x's device, of the dtype that all matrices of all layers have");
    return (next_++)->data();
  }
  const float* scales(const char* name, int64_t outputs) {
    if (matrices_ == x_.dtype()) {
      STD_TORCH_CHECK(next_->numel() == 0, name, " of a layer is for matrices of int8 or float8_e4m3fn");
      return static_cast<const float*>(nothing());
    }
    STD_TORCH_CHECK(is_vector(outputs, aoti_torch_dtype_float32()), name, " of a layer is a vector of ", outputs,
                    ", contiguous, of float32, on x's device");
    return static_cast<const float*>((next_++)->data());
  }

 private:
  bool is_vector(int64_t size, int32_t dtype) const {
    return next_->dim() == 1 && next_->numel() == size && next_->contiguous() && next_->dtype() == dtype &&
           is_beside(*next_, x_);
  }
  const void* nothing() {
    ++next_;
    return nullptr;
  }

  const Handle* next_;
  const Handle& x_;
  const int32_t matrices_;
};

// Sizes and steps that all caches have in common; a dimension of one element has no step.
void take_form(DecoderLayersArgs& args, const Handle& cache) {
  STD_TORCH_CHECK(cache.dim() == 4, "a cache has four dimensions");
  const int64_t *size = cache.sizes(), *stride = cache.strides();
  STD_TORCH_CHECK(
      size[0] == args.rows && size[1] == args.kv_heads && size[2] >= 1 && size[3] >= 1 && size[3] < (int64_t(1) << 24),
      "a cache is (rows, kv_heads, seq_max, head_dim)");
  args.seq_max = size[2];
  args.head_dim = int32_t(size[3]);
  for (int i = 0; i < 3; ++i) args.cache_step[i] = size[i] == 1 ? 0 : stride[i];
}

void* cache_of(const Handle& cache, const DecoderLayersArgs& args, const Handle& x) {
  DecoderLayersArgs own = args;
  take_form(own, cache);
  STD_TORCH_CHECK(own.seq_max == args.seq_max && own.head_dim == args.head_dim &&
                      memcmp(own.cache_step, args.cache_step, sizeof own.cache_step) == 0 &&
                      (args.head_dim == 1 || cache.strides()[3] == 1) && is_alike(cache, x),
                  "all caches have the same sizes and strides, heads side by side, and x's dtype and device");
  return cache.mutable_data();
}

std::vector<DecoderLayer> layers_of(DecoderLayersArgs& args, const std::vector<Handle>& weights,
                                    const std::vector<Handle>& k_caches, const std::vector<Handle>& v_caches,
                                    const Handle& x) {
  const int64_t width = args.width, dim = args.head_dim;
  const int64_t inner = args.heads * dim, packed = inner + 2 * args.kv_heads * dim;
  const Handle& second = weights[kSecond];
  STD_TORCH_CHECK(second.dim() == 2 && second.sizes()[1] >= 1 && second.sizes()[1] < (int64_t(1) << 30),
                  "second of a layer is a matrix of width x ffn");
  const int64_t ffn = second.sizes()[1], first = args.activation == DECODER_SWIGLU ? 2 * ffn : ffn;
  args.ffn = int32_t(ffn);
  args.weights = format_of(weights[kQkv], x);
  std::vector<DecoderLayer> layers(k_caches.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    DecoderLayer& layer = layers[i];
    Weights next(&weights[i * kWeights], x, weights[kQkv].dtype());
    layer.norm1 = next.vector("norm1", width);
    layer.norm1_bias = next.optional_vector("norm1_bias", width);
    layer.qkv = next.matrix("qkv", packed, width);
    layer.qkv_bias = next.optional_vector("qkv_bias", packed);
    layer.q_norm = next.optional_vector("q_norm", dim);
    layer.k_norm = next.optional_vector("k_norm", dim);
    STD_TORCH_CHECK(!layer.q_norm == !layer.k_norm, "a layer has both q_norm and k_norm, or neither");
    layer.output = next.matrix("output", width, inner);
    layer.output_bias = next.optional_vector("output_bias", width);
    layer.norm2 = next.vector("norm2", width);
    layer.norm2_bias = next.optional_vector("norm2_bias", width);
    layer.first = next.matrix("first", first, width);
    layer.first_bias = next.optional_vector("first_bias", first);
    layer.second = next.matrix("second", width, ffn);
    layer.second_bias = next.optional_vector("second_bias", width);
    layer.qkv_scales = next.scales("qkv_scales", packed);
    layer.output_scales = next.scales("output_scales", width);
    layer.first_scales = next.scales("first_scales", first);
    layer.second_scales = next.scales("second_scales", width);
    layer.k_cache = cache_of(k_caches[i], args, x);
    layer.v_cache = cache_of(v_caches[i], args, x);
  }
  return layers;
}

void take_angles(DecoderLayersArgs& args, const Handle& cos_sin, const Handle& x) {
  if (!cos_sin) return;
  const int64_t dim = cos_sin.dim(), rotary = dim >= 1 ? cos_sin.sizes()[dim - 1] : 0;
  STD_TORCH_CHECK(cos_sin.dtype() == aoti_torch_dtype_float32() && cos_sin.contiguous() && is_beside(cos_sin, x) &&
                      rotary % 2 == 0 && rotary >= 2 && rotary <= args.head_dim &&
                      cos_sin.numel() == args.rows * rotary,
                  "cos_sin is float32 (rows, rotary), contiguous, on x's device, rotary even and at most head_dim");
  args.cos_sin = static_cast<const float*>(cos_sin.data());
  args.rotary = int32_t(rotary);
}

void decoder_layers(StableIValue* stack, uint64_t, uint64_t) {
  Arguments given(stack);
  const Handle x = given.tensor();
  const std::vector<Handle> weights = given.tensors(), k_caches = given.tensors(), v_caches = given.tensors();
  const Handle cos_sin = given.optional_tensor(), places = given.tensor();
  const int64_t heads = torch::stable::detail::to<int64_t>(stack[6]);
  const int64_t kv_heads = torch::stable::detail::to<int64_t>(stack[7]);
  Arguments last(stack + 8);
  const Text activation = last.text();
  const double eps = torch::stable::detail::to<double>(stack[9]);
  const Text impl = Arguments(stack + 10).text();

  const int64_t dim = x.dim(), *size = x.sizes(), most = int64_t(1) << 24;
  STD_TORCH_CHECK((dim == 2 || (dim == 3 && size[1] == 1)) && x.contiguous() && x.numel() > 0,
                  "x is (rows, width) or (rows, 1, width), contiguous, not empty");
  STD_TORCH_CHECK(heads >= 1 && kv_heads >= 1 && heads < (int64_t(1) << 16) && heads % kv_heads == 0,
                  "heads is a multiple of kv_heads, both at least 1");
  STD_TORCH_CHECK(size[0] < most && size[dim - 1] < most, "unsupported: 2^24 rows or columns of x");
  STD_TORCH_CHECK(eps >= 0 && std::isfinite(eps), "eps is a finite number, at least 0");
  STD_TORCH_CHECK(!k_caches.empty() && v_caches.size() == k_caches.size() && k_caches.size() < (size_t(1) << 16) &&
                      weights.size() == kWeights * k_caches.size(),
                  "a layer has ", kWeights, " weights and scales and two caches, and there is at least one");
  DecoderLayersArgs args{};
  args.x = x.data();
  args.count = int32_t(k_caches.size());
  args.rows = int32_t(size[0]), args.width = int32_t(size[dim - 1]);
  args.heads = int32_t(heads), args.kv_heads = int32_t(kv_heads);
  args.activation = activation_of(activation.view());
  args.eps = float(eps), args.dtype = dtype_of(x);
  take_form(args, k_caches[0]);
  STD_TORCH_CHECK(heads * args.head_dim < most, "unsupported: heads of 2^24 or more elements in all");
  take_angles(args, cos_sin, x);
  STD_TORCH_CHECK(places.dtype() == aoti_torch_dtype_int64() && places.dim() == 1 && places.numel() == args.rows &&
                      places.contiguous() && is_beside(places, x),
                  "places is a contiguous int64 tensor (rows,) on x's device");
  args.place = static_cast<const int64_t*>(places.data());
  const std::vector<DecoderLayer> layers = layers_of(args, weights, k_caches, v_caches, x);
  args.layers = layers.data();
  Handle out = dim == 2 ? empty_like(x, {size[0], size[1]}) : empty_like(x, {size[0], size[1], size[2]});
  args.out = out.mutable_data();
  args.workspace_bytes = decoder_workspace(args);
  const Handle workspace = empty(x, aoti_torch_dtype_uint8(), {args.workspace_bytes + kAlignment});
  const auto begin = reinterpret_cast<uintptr_t>(workspace.mutable_data());
  args.workspace = reinterpret_cast<void*>((begin + kAlignment - 1) / kAlignment * kAlignment);
  STD_TORCH_CHECK(impl.view().substr(0, 4) != "auto", "decoder_layers takes the name of a kernel, not auto");
  run("decoder_layers", impl.view(), args, x, [](CallSignature&) {});
  give_back(stack, std::move(out));
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def(
      "decoder_layers(Tensor x, Tensor[] weights, Tensor(a!)[] k_caches, Tensor(b!)[] v_caches, Tensor? cos_sin, "
      "Tensor places, int heads, int kv_heads, str activation, float eps, str impl) -> Tensor");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) { m.impl("decoder_layers", &decoder_layers); }
