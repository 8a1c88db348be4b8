// Tensors and texts by their bare handles, for operators whose launch path is counted in microseconds:
// torch::stable::Tensor makes two heap allocations a tensor, its std::string one that is never freed, and stable ops
// such as new_empty look their operator up by name at every call.
#pragma once
#include <cstring>
#include <string_view>
#include <vector>

#include "binding.h"

namespace fusescope {

// One argument or result. Owns its handle; a default one is "no tensor".
class Handle {
 public:
  Handle() = default;
  explicit Handle(AtenTensorHandle owned) : tensor_(owned) {}
  Handle(Handle&& other) noexcept : tensor_(other.release()) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(tensor_, other.tensor_);
    return *this;
  }
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

  int64_t dim() const { return get<int64_t>(aoti_torch_get_dim); }
  int64_t numel() const { return get<int64_t>(aoti_torch_get_numel); }
  const int64_t* sizes() const { return get<int64_t*>(aoti_torch_get_sizes); }
  const int64_t* strides() const { return get<int64_t*>(aoti_torch_get_strides); }
  const void* data() const { return get<const void*>(torch_get_const_data_ptr); }
  void* mutable_data() const { return get<void*>(torch_get_mutable_data_ptr); }
  int32_t dtype() const {
    return get<int32_t>(aoti_torch_get_dtype);
  }  // libtorch's number: compare with aoti_torch_dtype_...()
  int32_t device_type() const { return get<int32_t>(aoti_torch_get_device_type); }
  int32_t device_index() const { return get<int32_t>(aoti_torch_get_device_index); }
  bool contiguous() const { return get<bool>(aoti_torch_is_contiguous); }

 private:
  template <typename Value> Value get(AOTITorchError (*read)(AtenTensorHandle, Value*)) const {
    Value value{};
    TORCH_ERROR_CODE_CHECK(read(tensor_, &value));
    return value;
  }

  AtenTensorHandle tensor_ = nullptr;
};

// A str argument; owns torch's string.
class Text {
 public:
  explicit Text(StringHandle owned) : handle_(owned) {}
  Text(const Text&) = delete;
  ~Text() { torch_delete_string(handle_); }

  std::string_view view() const {
    const char* begin = nullptr;
    size_t length = 0;
    TORCH_ERROR_CODE_CHECK(torch_string_c_str(handle_, &begin));
    TORCH_ERROR_CODE_CHECK(torch_string_length(handle_, &length));
    return {begin, length};
  }

 private:
  StringHandle handle_;
};

// The arguments of a boxed operator, read from the front; ownership passes to the caller, as the stable ABI demands.
// Arguments not yet read when an error is thrown leak, so read all of them first.
class Arguments {
 public:
  explicit Arguments(StableIValue* stack) : next_(stack) {}
  Handle tensor() { return Handle(torch::stable::detail::to<AtenTensorHandle>(*next_++)); }
  Handle optional_tensor() {
    return Handle(torch::stable::detail::to<std::optional<AtenTensorHandle>>(*next_++).value_or(nullptr));
  }
  std::vector<Handle> tensors() {
    std::vector<Handle> found;
    for (AtenTensorHandle t : torch::stable::detail::to<std::vector<AtenTensorHandle>>(*next_++)) found.emplace_back(t);
    return found;
  }
  bool truth() { return torch::stable::detail::to<bool>(*next_++); }
  int64_t whole() { return torch::stable::detail::to<int64_t>(*next_++); }
  std::optional<double> optional_number() { return torch::stable::detail::to<std::optional<double>>(*next_++); }
  Text text() { return Text(torch::stable::detail::to<StringHandle>(*next_++)); }

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

// An uninitialised tensor on like's device, of libtorch's dtype number or like's own; contiguous where no strides are
// given.
template <size_t Rank>
Handle empty_strided(const Handle& like, int32_t dtype, const int64_t (&sizes)[Rank], const int64_t (&strides)[Rank]) {
  AtenTensorHandle out = nullptr;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(Rank, sizes, strides, dtype, like.device_type(), like.device_index(), &out));
  return Handle(out);
}
template <size_t Rank> Handle empty(const Handle& like, int32_t dtype, const int64_t (&sizes)[Rank]) {
  int64_t strides[Rank], step = 1;
  for (size_t i = Rank; i-- > 0; step *= sizes[i] > 0 ? sizes[i] : 1) strides[i] = step;
  return empty_strided(like, dtype, sizes, strides);
}
template <size_t Rank> Handle empty_like(const Handle& like, const int64_t (&sizes)[Rank]) {
  return empty(like, like.dtype(), sizes);
}

// Everything about a call that the choice of an implementation may depend on: dtype, sizes, strides, alignment and
// device of tensors; more words as needed.
class CallSignature {
 public:
  void add(int64_t word) {
    STD_TORCH_CHECK(count_ < kWords, "a call signature of more words than it holds");
    words_[count_++] = word;
    hash_ = (hash_ ^ uint64_t(word)) * 0x9e3779b97f4a7c15ull;
  }
  void add(const Handle& t) {
    const int64_t dim = t.dim(), *size = t.sizes(), *stride = t.strides();
    add(int64_t(t.dtype()) << 32 | dim << 16 | int64_t(reinterpret_cast<uintptr_t>(t.data()) % 16) << 8 |
        uint8_t(t.device_index()));
    for (int64_t i = 0; i < dim; ++i) {
      add(size[i]);
      add(stride[i]);
    }
  }
  void add(std::string_view text) { add(int64_t(std::hash<std::string_view>{}(text))); }
  uint64_t hash() const { return hash_; }
  bool operator==(const CallSignature& other) const {
    return count_ == other.count_ && memcmp(words_, other.words_, size_t(count_) * sizeof(int64_t)) == 0;
  }

 private:
  static constexpr int kWords = 48;
  int64_t words_[kWords] = {};
  uint64_t hash_ = 0;
  int count_ = 0;
};

// Runs an implementation of a family as run() of binding.h does; switches the device only where another one is current.
// impl: its name. "auto=NAME" also caches NAME for "auto" in later calls of the same signature on this thread, so that
// a choice that takes many microseconds in Python is made once; "auto" before that is an error. Calls by name bypass
// this cache. sign(signature) adds what the choice depends on. given: "parts" for work items (core/sources.py, symbol).
template <typename Args, typename Sign> void run(const char* family, std::string_view impl, const Args& args,
                                                 const Handle& on, Sign sign, std::string_view given = {}) {
  struct Choice {
    const char* family = nullptr;
    CallSignature signature;
    Entry entry = nullptr;
  };
  constexpr std::string_view automatic = "auto", choosing = "auto=";
  thread_local Choice choices[64];  // one per hash; loops repeat a few signatures
  thread_local const char* last_family = nullptr;
  thread_local std::string last_name, last_given;
  thread_local Entry last = nullptr;
  CallSignature signature;
  Choice* choice = nullptr;
  const bool choose = impl.substr(0, choosing.size()) == choosing;
  if (choose || impl == automatic) {
    sign(signature);
    choice = &choices[signature.hash() >> 58];
  }
  Entry entry = nullptr;
  if (impl == automatic) {
    STD_TORCH_CHECK(choice->family == family && choice->signature == signature,
                    "unsupported: impl \"auto\" before an implementation was chosen for such a call (by impl "
                    "\"auto=NAME\", or by the Python function)");
    entry = choice->entry;
  } else {
    const std::string_view name = choose ? impl.substr(choosing.size()) : impl;
    if (last_family != family || last_name != name || last_given != given) {
      last = find_entry(family, std::string(name), std::string(given));  // throws before the names are stored
      last_family = family;
      last_name = name;
      last_given = given;
    }
    entry = last;
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
  const char* reason = entry(&args, stream);
  STD_TORCH_CHECK(reason == nullptr, reason ? reason : "");
  if (choose) *choice = Choice{family, signature, entry};
}

}  // namespace fusescope
