// Tensors by their bare handles, for operators whose launch path is counted in microseconds: torch::stable::Tensor makes two heap
// allocations a tensor, and stable ops such as new_empty look their operator up by name at every call.
#pragma once
#include "binding.h"

namespace fusescope {

// One argument or result. Owns its handle; a default one is "no tensor".
class Handle {
 public:
  Handle() = default;
  explicit Handle(AtenTensorHandle owned) : tensor_(owned) {}
  Handle(Handle&& other) noexcept : tensor_(other.release()) {}
  Handle(const Handle&) = delete;
  ~Handle() {
    if (tensor_) aoti_torch_delete_tensor_object(tensor_);
  }

  explicit operator bool() const { return tensor_ != nullptr; }
  AtenTensorHandle release() {
    AtenTensorHandle given = tensor_;
    tensor_ = nullptr;
    return given;
  }

  int64_t dim() const { return asked<int64_t>(aoti_torch_get_dim); }
  int64_t numel() const { return asked<int64_t>(aoti_torch_get_numel); }
  const int64_t* sizes() const { return asked<int64_t*>(aoti_torch_get_sizes); }
  const int64_t* strides() const { return asked<int64_t*>(aoti_torch_get_strides); }
  const void* data() const { return asked<const void*>(torch_get_const_data_ptr); }
  void* mutable_data() const { return asked<void*>(torch_get_mutable_data_ptr); }
  int32_t dtype() const { return asked<int32_t>(aoti_torch_get_dtype); }  // libtorch's number: compare with aoti_torch_dtype_...()
  int32_t device_type() const { return asked<int32_t>(aoti_torch_get_device_type); }
  int32_t device_index() const { return asked<int32_t>(aoti_torch_get_device_index); }
  bool contiguous() const { return asked<bool>(aoti_torch_is_contiguous); }

 private:
  template <typename Value> Value asked(AOTITorchError (*question)(AtenTensorHandle, Value*)) const {
    Value value{};
    TORCH_ERROR_CODE_CHECK(question(tensor_, &value));
    return value;
  }

  AtenTensorHandle tensor_ = nullptr;
};

// What a boxed operator is given, taken from the front; ownership passes to the caller, as the stable ABI wants it. Arguments not
// yet taken when an error is thrown would leak, so take all of them first.
class Arguments {
 public:
  explicit Arguments(StableIValue* stack) : next_(stack) {}
  Handle tensor() { return Handle(torch::stable::detail::to<AtenTensorHandle>(*next_++)); }
  Handle optional_tensor() { return Handle(torch::stable::detail::to<std::optional<AtenTensorHandle>>(*next_++).value_or(nullptr)); }
  int64_t integer() { return torch::stable::detail::to<int64_t>(*next_++); }
  double number() { return torch::stable::detail::to<double>(*next_++); }
  std::string text() { return torch::stable::detail::to<std::string>(*next_++); }

 private:
  StableIValue* next_;
};

inline void give_back(StableIValue* stack, Handle result) { stack[0] = torch::stable::detail::from(result.release()); }

inline int dtype_of(const Handle& t) {
  const int32_t dtype = t.dtype();
  if (dtype == aoti_torch_dtype_float16()) return FS_FLOAT16;
  if (dtype == aoti_torch_dtype_bfloat16()) return FS_BFLOAT16;
  if (dtype == aoti_torch_dtype_float32()) return FS_FLOAT32;
  STD_TORCH_CHECK(false, "unsupported: dtype (float32, float16 and bfloat16 are)");
}

// An uninitialised contiguous tensor of like's dtype on its device.
template <size_t Rank> Handle empty_like(const Handle& like, const int64_t (&sizes)[Rank]) {
  int64_t strides[Rank], step = 1;
  for (size_t i = Rank; i-- > 0; step *= sizes[i]) strides[i] = step;
  AtenTensorHandle out = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(Rank, sizes, strides, like.dtype(), like.device_type(), like.device_index(), &out));
  return Handle(out);
}

// As run() of binding.h. The device is switched only where another one is current.
template <typename Args> void run(const char* family, const std::string& impl, const Args& args, const Handle& on) {
  thread_local const char* last_family = nullptr;
  thread_local std::string last_name;
  thread_local Entry last = nullptr;
  if (last_family != family || last_name != impl) {
    last = find_entry(family, impl);  // throws before the names are kept
    last_family = family;
    last_name = impl;
  }
  void* stream = nullptr;
#ifdef FUSESCOPE_CUDA
  const int32_t device = on.device_index();
  std::optional<torch::stable::accelerator::DeviceGuard> guard;
  if (torch::stable::accelerator::getCurrentDeviceIndex() != device) guard.emplace(device);
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
#else
  (void)on;
#endif
  const char* reason = last(&args, stream);
  STD_TORCH_CHECK(reason == nullptr, reason ? reason : "");
}

}  // namespace fusescope
