// Implementation of upload.hpp without CUDA headers: it uses the streams and events of c10.
#include "trainer/data/upload.hpp"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <c10/util/StringUtil.h>

#include <deque>
#include <utility>

#include "common/base/error.hpp"

namespace ddprun::trainer {

struct Upload::Copies {
  explicit Copies(c10::Device device) : streams(device.type()), stream(streams.getStreamFromGlobalPool(device)) {}

  c10::impl::VirtualGuardImpl streams;
  c10::Stream stream;
  // One event per earlier batch. The event is complete when the work that was enqueued before that batch is done.
  std::deque<c10::Event> computing;
};

Upload::Upload(const Source& source, c10::Device device) : device_(device), description_(source.describe()) {
  if (device.is_cpu()) {
    finish_ = source.finish_on(device);
    return;
  }
  copies_ = std::make_unique<Copies>(device);
  const c10::StreamGuard copying(copies_->stream);
  finish_ = source.finish_on(device);
}

Upload::~Upload() = default;

void Upload::check(const Batch& batch) const {
  if (batch.tensors.size() != description_.tensors.size()) {
    throw UsageError(c10::str("make() of the data source returned a batch of ", batch.tensors.size(),
                              " tensors, but describe() lists ", description_.tensors.size(),
                              "; change one of them so that both agree"));
  }
  for (std::size_t i = 0; i < batch.tensors.size(); ++i) {
    const at::Tensor& found = batch.tensors[i];
    const TensorDescription& expected = description_.tensors[i];
    if (found.dim() > 0 && found.sizes().slice(1) == at::IntArrayRef(expected.sizes) && found.scalar_type() == expected.type &&
        found.size(0) == batch.tensors.front().size(0)) {
      continue;
    }
    throw UsageError(c10::str("make() of the data source returned tensor ", i, " of a batch as ", found.scalar_type(), " ",
                              found.sizes(), ", but describe() lists it as ", expected.type, " ",
                              at::IntArrayRef(expected.sizes),
                              " for each sample; a batch needs the number of samples as an additional first dimension. Change "
                              "make() or describe()"));
  }
}

void Upload::finish(Batch& batch) const {
  if (finish_) finish_(batch);
  check(batch);
  if (batch.partners.empty()) return;
  Batch others{.tensors = std::move(batch.partners), .weight = batch.weight};
  if (finish_) finish_(others);
  check(others);
  batch.partners = std::move(others.tensors);
}

Batch Upload::take(const Batch& batch) {
  if (!copies_) {
    Batch here = batch;
    finish(here);
    return here;
  }
  Copies& copies = *copies_;
  const c10::Stream computing = copies.streams.getStream(device_);
  if (copies.computing.size() >= kMaxAhead) {
    copies.computing.front().synchronize();
    copies.computing.pop_front();
  }
  copies.computing.emplace_back(device_.type());
  copies.computing.back().record(computing);

  Batch there{.tensors = {}, .weight = batch.weight, .stand_in = batch.stand_in};
  c10::Event arrived(device_.type());
  {
    const c10::StreamGuard copying(copies.stream);
    for (const at::Tensor& tensor : batch.tensors) there.tensors.push_back(tensor.to(device_, /*non_blocking=*/true));
    for (const at::Tensor& tensor : batch.partners) there.partners.push_back(tensor.to(device_, /*non_blocking=*/true));
    if (batch.own_part.defined()) there.own_part = batch.own_part.to(device_, /*non_blocking=*/true);
    finish(there);
    arrived.record(copies.stream);
  }
  arrived.block(computing);
  // This memory was allocated on the copy stream. It must not be reused before the computing stream has finished with it.
  for (const at::Tensor& tensor : there.tensors) tensor.record_stream(computing);
  for (const at::Tensor& tensor : there.partners) tensor.record_stream(computing);
  if (there.own_part.defined()) there.own_part.record_stream(computing);
  return there;
}

}  // namespace ddprun::trainer
