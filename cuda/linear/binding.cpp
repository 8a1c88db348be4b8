// A linear layer for torch: fusescope::linear(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, int activation,
// bool settled, str impl) -> Tensor, and linear_swiglu without residual and activation. Which algorithm of cuBLASLt
// computes a problem is kept here: linear_algorithms lists what there is, linear_remember says which one v2_measured
// takes from now on (backend/fusescope/ops/common/algorithms.py measures).
#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "../common/row_operands.h"
#include "linear.cuh"

namespace {
using namespace fusescope;

struct Plan {
  bool listed = false, own = false, fused = true,
       has_measured = false;  // own: a product of ours, which has no algorithms
  LinearAlgorithm first{}, measured{};
};
using Key = std::array<int64_t, 14>;

std::mutex guard;
std::map<Key, Plan> plans;

// A call: its arguments, and the tensors that own what they point to.
struct __attribute__((visibility("hidden"))) Call {
  Rows x;
  Tensor weight;
  std::optional<Tensor> bias;
  std::optional<Rows> residual;
  LinearArgs args{};
};

// Rows whose distance a matrix library takes: at least a row's length.
Rows matrix_rows(const Tensor& t) {
  Rows r = as_rows(t);
  if (r.step >= r.cols || r.rows <= 1) {
    r.step = r.step >= r.cols ? r.step : r.cols;
    return r;
  }
  return as_rows(torch::stable::contiguous(t));
}

Call make_call(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
               const std::optional<Tensor>& residual, int64_t activation) {
  STD_TORCH_CHECK(
      x.dim() >= 1 && weight.dim() == 2 && weight.sizes()[1] == x.sizes()[x.dim() - 1] && weight.sizes()[1] >= 1,
      "linear takes x (..., K) and weight (N, K), K at least 1");
  STD_TORCH_CHECK(activation >= LINEAR_NONE && activation <= LINEAR_GELU_TANH, "activation is 0, 1 (erf) or 2 (tanh)");
  check_alike(weight, "weight", x);
  const int64_t outputs = weight.sizes()[0], terms = weight.sizes()[1];
  const int64_t down = weight.strides()[0], across = weight.strides()[1];
  const bool straight = (across == 1 || terms == 1) && (down >= terms || outputs == 1);
  const bool transposed = !straight && (down == 1 || outputs == 1) && (across >= outputs || terms == 1);
  Call call{matrix_rows(x),
            straight || transposed ? weight : torch::stable::contiguous(weight),
            std::nullopt,
            std::nullopt,
            {}};
  LinearArgs& args = call.args;
  if (bias) {
    STD_TORCH_CHECK(bias->dim() == 1 && bias->sizes()[0] == outputs, "bias has an element for each output");
    check_alike(*bias, "bias", x);
    call.bias = as_contiguous(*bias);
    args.bias = call.bias->const_data_ptr();
  }
  args.rows = call.x.rows, args.outputs = outputs, args.terms = terms, args.x_row = call.x.step;
  if (residual) {
    bool fits = residual->dim() == x.dim() && residual->sizes()[x.dim() - 1] == outputs;
    for (int64_t i = 0; fits && i + 1 < x.dim(); ++i) fits = residual->sizes()[i] == x.sizes()[i];
    STD_TORCH_CHECK(fits, "residual has the shape of the result");
    check_alike(*residual, "residual", x);
    call.residual = matrix_rows(*residual);
    args.residual = call.residual->tensor.const_data_ptr();
    args.residual_row = call.residual->step;
  }
  args.x = call.x.tensor.const_data_ptr();
  args.weight = call.weight.const_data_ptr();
  args.transposed = transposed ? 1 : 0;
  args.weight_row = transposed ? (terms == 1 ? outputs : across) : (straight && outputs > 1 ? down : terms);
  args.activation = int32_t(activation);
  args.dtype = dtype_of(x);
  return call;
}

// Addresses by what they are multiples of (up to 16 bytes), two bits each: algorithms may depend on it.
int64_t alignments(const LinearArgs& args) {
  int64_t code = 0;
  for (const void* p : {args.x, args.weight, args.bias, args.residual, static_cast<const void*>(args.out)}) {
    const auto address = reinterpret_cast<uintptr_t>(p);
    code = code * 4 + (address % 16 == 0 ? 3 : address % 8 == 0 ? 2 : address % 4 == 0 ? 1 : 0);
  }
  return code;
}

Key key_of(const LinearArgs& args, const std::string& impl, const Tensor& x) {
  return {int64_t(std::hash<std::string>{}(impl)),
          x.get_device_index(),
          args.rows,
          args.outputs,
          args.terms,
          args.x_row,
          args.weight_row,
          args.residual_row,
          args.transposed,
          args.activation,
          args.dtype,
          args.bias != nullptr,
          args.residual != nullptr,
          alignments(args)};
}

// Nothing where the implementation has a product of its own.
std::optional<std::vector<LinearAlgorithm>> list(LinearArgs args, int64_t most, const std::string& impl,
                                                 const Tensor& x) {
  std::vector<LinearAlgorithm> found(size_t(most < 1 ? 1 : (most > 64 ? 64 : most)));
  int32_t count = 0;
  args.request = LINEAR_LIST, args.list = found.data(), args.most = int32_t(found.size()), args.count = &count;
  run("linear", impl, args, x);
  if (count == LINEAR_OWN) return std::nullopt;
  found.resize(size_t(count));
  return found;
}

// What is known of the problem; the heuristics are asked once. Sets args.fused.
Plan plan_of(LinearArgs& args, const std::string& impl, const Tensor& x) {
  const Key key = key_of(args, impl, x);
  {
    std::lock_guard<std::mutex> hold(guard);
    const auto at = plans.find(key);
    if (at != plans.end() && at->second.listed) {
      args.fused = at->second.fused;
      return at->second;
    }
  }
  Plan plan;
  plan.listed = true;
  args.fused = 1;
  std::optional<std::vector<LinearAlgorithm>> found = list(args, 1, impl, x);
  plan.own = !found;
  if (found) {
    if (found->empty()) {
      args.fused = 0;
      found = list(args, 1, impl, x);
    }
    STD_TORCH_CHECK(!found->empty(),
                    "unsupported: cuBLASLt has no algorithm for a product of these sizes, strides and dtype");
    plan.fused = args.fused;
    plan.first = found->front();
  }
  std::lock_guard<std::mutex> hold(guard);
  return plans[key] = plan;
}

Tensor result_of(const Tensor& x, int64_t outputs) {
  std::vector<int64_t> shape(x.sizes().begin(), x.sizes().end());
  shape.back() = outputs;
  return torch::stable::new_empty(x, shape);
}

// torch's product; nothing of it is recorded for a gradient, as for all operators of this library.
Tensor torch_linear(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias) {
  struct NoGradient {
    bool was = aoti_torch_grad_mode_is_enabled();
    NoGradient() { aoti_torch_grad_mode_set_enabled(false); }
    ~NoGradient() { aoti_torch_grad_mode_set_enabled(was); }
  } none;
  std::array<StableIValue, 3> stack{torch::stable::detail::from(x), torch::stable::detail::from(weight),
                                    torch::stable::detail::from(bias)};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::linear", "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

// What the caller says of weight and bias holds for them alone: a copy was written by the kernel before this one.
bool is_settled(bool settled, const Call& call, const Tensor& weight, const std::optional<Tensor>& bias) {
  return settled && call.weight.const_data_ptr() == weight.const_data_ptr() &&
         (!bias || call.bias->const_data_ptr() == bias->const_data_ptr());
}

Tensor linear(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
              const std::optional<Tensor>& residual, int64_t activation, bool settled, const std::string& impl) {
  find_entry("linear", impl);
  Call call = make_call(x, weight, bias, residual, activation);
  LinearArgs& args = call.args;
  if (impl.rfind("cpu", 0) == 0) {
    Tensor out = as_contiguous(torch_linear(x, weight, bias));
    args.out = out.mutable_data_ptr();
    if (out.numel() > 0 && (args.activation || args.residual)) run("linear", impl, args, x);
    return out;
  }
  Tensor out = result_of(x, args.outputs);
  if (out.numel() == 0) return out;
  args.out = out.mutable_data_ptr();
  args.settled = is_settled(settled, call, weight, bias);
  const Plan plan = plan_of(args, impl, x);
  args.first = plan.own ? nullptr : &plan.first;
  args.measured = plan.has_measured ? &plan.measured : nullptr;
  args.workspace_bytes = plan.first.workspace;
  if (args.measured && plan.measured.workspace > args.workspace_bytes) args.workspace_bytes = plan.measured.workspace;
  std::optional<Tensor> workspace;
  if (args.workspace_bytes > 0) {
    workspace = torch::stable::new_empty(x, {args.workspace_bytes}, torch::headeronly::ScalarType::Byte);
    args.workspace = workspace->mutable_data_ptr();
  }
  run("linear", impl, args, x);
  return out;
}

// SwiGLU of a product: (..., outputs / 2); by the kernels that compute it in their own launch.
Tensor linear_swiglu(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias, bool settled,
                     const std::string& impl) {
  find_entry("linear", impl);
  Call call = make_call(x, weight, bias, std::nullopt, LINEAR_NONE);
  LinearArgs& args = call.args;
  STD_TORCH_CHECK(args.outputs % 2 == 0, "a weight of gate and up has an even number of rows");
  args.activation = LINEAR_SWIGLU;
  args.settled = is_settled(settled, call, weight, bias);
  Tensor out = result_of(x, args.outputs / 2);
  args.out = out.mutable_data_ptr();
  if (out.numel() == 0) return out;
  const bool own = impl.rfind("cpu", 0) != 0 && !list(args, 1, impl, x);
  STD_TORCH_CHECK(own, "unsupported: SwiGLU in the product's launch (", impl, " makes no such launch)");
  run("linear", impl, args, x);
  return out;
}

// int64 (n, 9) on the CPU: the algorithms for the problem, the heuristics' best guess first; eight words and the
// workspace in bytes.
Tensor linear_algorithms(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                         const std::optional<Tensor>& residual, int64_t activation, int64_t most,
                         const std::string& impl) {
  Call call = make_call(x, weight, bias, residual, activation);
  Tensor out = result_of(x, call.args.outputs);
  call.args.out = out.mutable_data_ptr();
  std::vector<LinearAlgorithm> found;
  if (out.numel() > 0) {
    plan_of(call.args, impl, x);
    found = list(call.args, most, impl, x).value_or(std::vector<LinearAlgorithm>{});
  }
  Tensor rows = torch::stable::empty({int64_t(found.size()), 9}, torch::headeronly::ScalarType::Long, std::nullopt,
                                     torch::stable::Device(torch::headeronly::DeviceType::CPU));
  auto to = static_cast<int64_t*>(rows.mutable_data_ptr());
  for (const LinearAlgorithm& one : found) {
    for (uint64_t word : one.data) *to++ = int64_t(word);
    *to++ = one.workspace;
  }
  return rows;
}

// From now on v2_measured computes this problem by the given algorithm: int64 (9,) on the CPU, a row of
// linear_algorithms.
void linear_remember(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                     const std::optional<Tensor>& residual, int64_t activation, const Tensor& algorithm,
                     const std::string& impl) {
  STD_TORCH_CHECK(algorithm.dim() == 1 && algorithm.sizes()[0] == 9 && algorithm.is_contiguous() &&
                      algorithm.is_cpu() && algorithm.scalar_type() == torch::headeronly::ScalarType::Long,
                  "an algorithm is nine int64 on the CPU");
  Call call = make_call(x, weight, bias, residual, activation);
  Tensor out = result_of(x, call.args.outputs);
  if (out.numel() == 0) return;
  call.args.out = out.mutable_data_ptr();
  plan_of(call.args, impl, x);
  auto from = static_cast<const int64_t*>(algorithm.const_data_ptr());
  LinearAlgorithm measured;
  for (uint64_t& word : measured.data) word = uint64_t(*from++);
  measured.workspace = *from;
  std::lock_guard<std::mutex> hold(guard);
  Plan& plan = plans[key_of(call.args, impl, x)];
  plan.measured = measured;
  plan.has_measured = true;
}
}  // namespace

#ifndef FUSESCOPE_CUDA
STABLE_TORCH_LIBRARY_FRAGMENT(fusescope, m) {
  m.def(
      "linear(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, int activation, bool settled, str impl) -> "
      "Tensor");
  m.def("linear_swiglu(Tensor x, Tensor weight, Tensor? bias, bool settled, str impl) -> Tensor");
  m.def(
      "linear_algorithms(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, int activation, int most, str impl) "
      "-> Tensor");
  m.def(
      "linear_remember(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, int activation, Tensor algorithm, str "
      "impl) -> ()");
}
#endif
STABLE_TORCH_LIBRARY_IMPL(fusescope, FUSESCOPE_DISPATCH_KEY, m) {
  m.impl("linear", TORCH_BOX(&linear));
  m.impl("linear_swiglu", TORCH_BOX(&linear_swiglu));
  m.impl("linear_algorithms", TORCH_BOX(&linear_algorithms));
  m.impl("linear_remember", TORCH_BOX(&linear_remember));
}
