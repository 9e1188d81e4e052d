// What torch asks its C++ backends: whether an accelerator is there, and autograd for a stream on it.
// `simulate` says which kind of device there is from now on; that of a CPU is none.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/FakeGuardImpl.h>

#include <new>

using at::Allocator, at::DeviceIndex, at::Generator;
using Kind = c10::DeviceType;
static Kind present = Kind::CPU;

template <class Base, Kind kind> struct Hooks : Base {
  void init() const override {}
  bool isBuilt() const override { return present == kind; }
  bool isAvailable() const override { return present == kind; }
  bool hasPrimaryContext(DeviceIndex) const override { return present == kind; }
  Generator getNewGenerator(DeviceIndex) const override { return at::detail::createCPUGenerator(); }
  Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
};

// Torch keeps its hooks for the life of the process, so ours take their place in memory.
template <class Base, Kind kind> bool put(const Base& hooks) {
  static_assert(sizeof(Hooks<Base, kind>) == sizeof(Base));
  static c10::impl::FakeGuardImpl<kind> guard;
  new (const_cast<Base*>(&hooks)) Hooks<Base, kind>;
  c10::impl::device_guard_impl_registry[static_cast<size_t>(kind)].store(&guard);
  return true;
}

extern "C" void simulate(int kind) {
  static bool done = put<at::CUDAHooksInterface, Kind::CUDA>(at::detail::getCUDAHooks()) &&
                     put<at::MPSHooksInterface, Kind::MPS>(at::detail::getMPSHooks());
  present = done ? static_cast<Kind>(kind) : Kind::CPU;
}
