#include "trainer/parallel/compression.hpp"

#include <ATen/core/ivalue_inl.h>

#include <utility>
#include <vector>

namespace ddprun::trainer {
namespace {

using c10::ivalue::Future;

struct Setting {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  at::ScalarType type;
};

class Compression final : public c10d::CppCommHookInterface<Setting> {
 public:
  using CppCommHookInterface::CppCommHookInterface;

  // The division comes before the sum, because the sum of many gradients could exceed the range of fp16.
  c10::intrusive_ptr<Future> runHook(c10d::GradBucket& bucket) override {
    const at::Tensor buffer = bucket.getBufferRef();
    std::vector<at::Tensor> sum{buffer.to(state_.type).div_(state_.group->getSize())};
    const auto ends = state_.group->allreduce(sum)->getFuture();
    return ends->then(
        [buffer](Future& ended) {
          buffer.copy_(ended.value().toTensorVector()[0]);
          return c10::IValue(buffer);
        },
        ends->elementType());
  }
};

}  // namespace

std::unique_ptr<c10d::CommHookInterface> compression(DdpConfig::Compress compress,
                                                     c10::intrusive_ptr<c10d::ProcessGroup> group) {
  if (compress == DdpConfig::Compress::kNone) return nullptr;
  const at::ScalarType type = compress == DdpConfig::Compress::kFp16 ? at::kHalf : at::kBFloat16;
  return std::make_unique<Compression>(Setting{std::move(group), type});
}

}  // namespace ddprun::trainer
