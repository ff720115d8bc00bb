// Tensors on "cuda:0", "cuda:1", ... without a GPU. Their memory is the host's, and the CPU's kernels compute with it.
// What CUDA refuses is refused: operands on several devices, and more memory than a GPU has.
#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/as_strided_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <torch/extension.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::kCPU;
using c10::kCUDA;
using Tensors = std::vector<at::Tensor>;

constexpr int MOST = 16;  // GPUs
thread_local DeviceIndex current = 0;

int count() {
  const char* all = std::getenv("SIMULATED_GPUS");
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  int number = all ? std::min(std::atoi(all), MOST) : 0;
  if (!visible) return number;
  std::string ids = visible;
  return ids.empty() ? 0 : std::min<int>(number, std::count(ids.begin(), ids.end(), ',') + 1);
}

// ---- memory

std::atomic<int64_t> used[MOST], peak[MOST], most[MOST];  // bytes; no limit if `most` is 0

struct Block {
  void* data;
  int64_t size;
  DeviceIndex device;
};

void release(void* context) {
  auto* block = static_cast<Block*>(context);
  std::free(block->data);
  used[block->device] -= block->size;
  delete block;
}

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    Device device(kCUDA, current);
    if (size == 0) return {nullptr, nullptr, [](void*) {}, device};
    int64_t rounded = (size + 511) / 512 * 512;
    int64_t limit = most[current];
    TORCH_CHECK_WITH(OutOfMemoryError, !limit || used[current] + rounded <= limit,
                     "CUDA out of memory. Tried to allocate ", rounded, " bytes on a simulated GPU");
    int64_t now = used[current] += rounded, before = peak[current];
    while (now > before && !peak[current].compare_exchange_weak(before, now)) {}
    void* data = nullptr;
    TORCH_CHECK(posix_memalign(&data, 64, rounded) == 0, "the machine's memory is full");
    return {data, new Block{data, rounded, current}, release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void* to, const void* from, std::size_t size) const override { std::memcpy(to, from, size); }
};
Memory memory;

// ---- devices; each has one stream

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kCUDA; }
  Device getDevice() const override { return {kCUDA, current}; }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.index() >= 0) current = device.index();
  }
  void setDevice(Device device) const override {
    TORCH_CHECK(device.index() < count(), "CUDA error: invalid device ordinal");
    uncheckedSetDevice(device);
  }
  Device exchangeDevice(Device device) const override {
    auto before = getDevice();
    setDevice(device);
    return before;
  }
  DeviceIndex deviceCount() const noexcept override { return count(); }
  c10::Stream getStream(Device device) const override { return c10::Stream(c10::Stream::DEFAULT, device); }
  c10::Stream getDefaultStream(Device device) const override { return getStream(device); }
  c10::Stream getNewStream(Device device, int) const override { return getStream(device); }
  c10::Stream getStreamFromGlobalPool(Device device, bool) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  void record(void**, const c10::Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
};

}  // namespace

namespace at {
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return count() > 0; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return count() > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return count(); }
  DeviceIndex deviceCount() const override { return count(); }
  DeviceIndex current_device() const override { return current; }
  DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(DeviceIndex index) const override { Guard().setDevice({kCUDA, index}); }
  DeviceIndex exchangeDevice(DeviceIndex index) const override {
    return Guard().exchangeDevice({kCUDA, index}).index();
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex index) const override { return exchangeDevice(index); }
  bool isPinnedPtr(const void*) const override { return false; }
  Allocator* getPinnedMemoryAllocator() const override { return GetAllocator(kCPU); }
  Allocator* getCUDADeviceAllocator() const override { return &memory; }
};
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at

namespace c10::impl {
C10_REGISTER_GUARD_IMPL(CUDA, Guard)
}

namespace {

// ---- operators

const c10::DispatchKeySet KEYS(c10::DispatchKey::CUDA);

struct On {  // the current device, within a scope
  DeviceIndex before = current;
  explicit On(Device device) { Guard().uncheckedSetDevice(device); }
  ~On() { current = before; }
};

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  On on(device.value_or(kCUDA));
  return at::detail::empty_generic(sizes, &memory, KEYS, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<Device> device, std::optional<bool>) {
  On on(device.value_or(kCUDA));
  return at::detail::empty_strided_generic(sizes, strides, &memory, KEYS, c10::dtype_or_default(type));
}

// The memory of a tensor, as a tensor of the CPU
at::Tensor on_host(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  static char nothing[64];
  auto storage = tensor.storage();
  auto* first = static_cast<char*>(storage.mutable_data());
  auto* data = first ? first + tensor.storage_offset() * tensor.itemsize() : nothing;
  auto options = at::TensorOptions().dtype(tensor.dtype()).device(kCPU);
  return at::from_blob(data, tensor.sizes(), tensor.strides(), [storage](void*) {}, options);
}

at::Tensor on_gpu(const at::Tensor& host, Device device) {
  auto options = host.options().device(device);
  auto found = host.is_non_overlapping_and_dense() ? at::empty_strided(host.sizes(), host.strides(), options)
                                                   : at::empty(host.sizes(), options);
  on_host(found).copy_(host);
  return found;
}

at::Tensor strided_view(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                        std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}

at::Tensor reshape_alias(const at::Tensor& self, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  return strided_view(self, sizes, strides, self.storage_offset());
}

at::Tensor view(const at::Tensor& self, c10::IntArrayRef wanted) {
  auto sizes = at::infer_size(wanted, self.numel());
  auto strides = at::detail::computeStride(self.sizes(), self.strides(), sizes);
  TORCH_CHECK(strides, "view size is not compatible with input tensor's size and stride");
  return reshape_alias(self, sizes, *strides);
}

at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  dimension = at::maybe_wrap_dim(dimension, self.dim(), true);
  auto sizes = self.sizes().vec(), strides = self.strides().vec();
  int64_t stride = self.dim() ? strides[dimension] : 1;
  if (self.dim()) {
    sizes[dimension] = (sizes[dimension] - size) / step + 1;
    strides[dimension] *= step;
  }
  sizes.push_back(size);
  strides.push_back(stride);
  return reshape_alias(self, sizes, strides);
}

void resize_storage(at::Storage storage, int64_t size) {
  On on(storage.device());
  auto fresh = memory.allocate(size);
  if (size && storage.nbytes()) std::memcpy(fresh.get(), storage.data(), std::min<int64_t>(size, storage.nbytes()));
  storage.set_data_ptr_noswap(std::move(fresh));
  storage.set_nbytes(size);
}

const at::Tensor& resize_to(const at::Tensor& self, c10::IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  auto* tensor = self.unsafeGetTensorImpl();
  int64_t needed = (c10::multiply_integers(sizes) + self.storage_offset()) * self.itemsize();
  if (static_cast<int64_t>(self.storage().nbytes()) < needed) resize_storage(self.storage(), needed);
  tensor->set_sizes_contiguous(sizes);
  if (format && *format != at::MemoryFormat::Preserve) tensor->empty_tensor_restride(*format);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage, int64_t offset, c10::IntArrayRef sizes,
                        c10::IntArrayRef strides) {
  auto* tensor = self.unsafeGetTensorImpl();
  tensor->set_storage_keep_dtype(storage);
  tensor->set_storage_offset(offset);
  if (strides.size() == sizes.size()) tensor->set_sizes_and_strides(sizes, strides);
  else tensor->set_sizes_contiguous(sizes);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage storage) {
  int64_t numbers = storage.nbytes() / self.itemsize();
  return set_storage(self, storage, 0, {numbers}, {1});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& source, bool) {
  on_host(self).copy_(on_host(source));
  return self;
}

at::Scalar item(const at::Tensor& self) { return on_host(self).item(); }

// These accept indices and scalars of the CPU.
bool accepts_host(const std::string& name) {
  for (auto* start : {"aten::index", "aten::_index_put_impl_", "aten::_foreach", "aten::_fused"})
    if (name.rfind(start, 0) == 0) return true;
  return false;
}

// Every other operator: the CPU's kernel, on the same memory
struct Call {
  const c10::FunctionSchema& schema;
  std::optional<Device> device;
  bool host = false;  // whether an operand is on the CPU
  std::vector<std::tuple<at::Tensor, at::Tensor, bool>> operands;  // on the GPU, on the host, whether it is written

  at::Tensor to_host(const at::Tensor& tensor, bool written) {
    if (!tensor.defined()) return tensor;
    if (!tensor.is_cuda()) {
      host |= tensor.dim() > 0 || written;
      return tensor;
    }
    if (!device) device = tensor.device();
    if (*device != tensor.device()) refuse(tensor.device().str());
    bool unsized = written && tensor.numel() == 0;  // `out` of an operator, which resizes it
    auto found = unsized ? at::empty(tensor.sizes(), tensor.options().device(kCPU)) : on_host(tensor);
    operands.emplace_back(tensor, found, written);
    return found;
  }

  at::Tensor to_gpu(const at::Tensor& tensor) {
    for (auto& [gpu, host, written] : operands)
      if (host.is_same(tensor)) return gpu;
    return tensor.defined() ? on_gpu(tensor, device.value_or(Device(kCUDA, current))) : tensor;
  }

  void refuse(const std::string& other) {
    if (accepts_host(schema.name())) return;
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ",
                device ? device->str() : "cuda", " and ", other, "! (", schema.name(), ")");
  }
};

void compute(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  Call call{op.schema()};
  auto& arguments = call.schema.arguments();
  auto first = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); i++) {
    auto& value = (*stack)[first + i];
    bool written = arguments[i].alias_info() && arguments[i].alias_info()->isWrite();
    if (value.isTensor()) {
      value = call.to_host(value.toTensor(), written);
    } else if (value.isTensorList()) {
      Tensors list;
      for (auto& tensor : value.toTensorVector()) list.push_back(call.to_host(tensor, written));
      value = list;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (std::optional<at::Tensor> tensor : value.toOptionalTensorList())
        list.push_back(tensor ? call.to_host(*tensor, written) : tensor);
      value = list;
    } else if (value.isDevice() && value.toDevice().is_cuda()) {
      call.device = value.toDevice();
      value = Device(kCPU);
    }
  }
  if (call.host) call.refuse("cpu");
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (auto& [gpu, host, written] : call.operands)
    if (written && host.sizes() != gpu.sizes()) {
      resize_to(gpu, host.sizes(), std::nullopt);
      on_host(gpu).copy_(host);
    }
  for (size_t i = stack->size() - call.schema.returns().size(); i < stack->size(); i++) {
    auto& value = (*stack)[i];
    if (value.isTensor()) {
      value = call.to_gpu(value.toTensor());
    } else if (value.isTensorList()) {
      Tensors list;
      for (auto& tensor : value.toTensorVector()) list.push_back(call.to_gpu(tensor));
      value = list;
    }
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("as_strided", strided_view);
  library.impl("_reshape_alias", reshape_alias);
  library.impl("view", view);
  library.impl("unfold", unfold);
  library.impl("resize_", resize_to);
  library.impl("set_.source_Storage_storage_offset", set_storage);
  library.impl("set_.source_Storage", set_whole_storage);
  library.impl("set_.source_Tensor", set_tensor);
  library.impl("copy_", copy);
  library.impl("_local_scalar_dense", item);
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&compute>());
}

namespace c10d {
// DistributedDataParallel measures its steps with it.
struct HostTimer : Timer {
  explicit HostTimer(Device) {}
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    auto from = getTimeRef(start), to = getTimeRef(end);
    return from == kUnsetTime || to < from ? std::optional<int64_t>() : to - from;
  }
};
C10_REGISTER_TYPED_CLASS(TimerRegistry, kCUDA, HostTimer)
}  // namespace c10d

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  c10::SetAllocator(kCUDA, &memory, 1);
  module.def("count", count);
  module.def("current", [] { return current; });
  module.def("use", [](DeviceIndex device) { Guard().setDevice({kCUDA, device}); });
  module.def("used", [](DeviceIndex device) { return used[device].load(); });
  module.def("peak", [](DeviceIndex device) { return peak[device].load(); });
  module.def("reset_peak", [](DeviceIndex device) { peak[device] = used[device].load(); });
  module.def("limit", [](DeviceIndex device, int64_t size) { most[device] = size; });
  module.def("on_host", &on_host);
  module.def("resize_storage", resize_storage);
}
