// Implementation of upload.hpp, without a CUDA header: streams and events are those of c10.
#include "trainer/data/upload.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <deque>

#include "trainer/data/pixels.hpp"

namespace ddprun::trainer {

Pictures pictures_for(c10::Device device) {
  return device.is_cpu() ? Pictures::kNormalised : Pictures::kPinnedBytes;
}

struct Upload::Copies {
  explicit Copies(c10::Device device) : streams(device.type()), stream(streams.getStreamFromGlobalPool(device)) {}

  c10::impl::VirtualGuardImpl streams;
  c10::Stream stream;
  std::deque<c10::Event> computing;  // of each batch before: what had been enqueued when it came
};

Upload::Upload(Normalization normalization, c10::Device device) : device_(device) {
  const PixelTable table = make_pixel_table(normalization);
  at::Tensor values = at::empty({static_cast<std::int64_t>(table.size())}, at::kFloat);
  std::copy(table.begin(), table.end(), values.mutable_data_ptr<float>());
  if (device.is_cpu()) {
    table_ = values;
    return;
  }
  copies_ = std::make_unique<Copies>(device);
  const c10::StreamGuard copying(copies_->stream);
  table_ = values.to(device);
}

Upload::~Upload() = default;

// A look-up, since a division on a GPU is a multiplication by the inverse, which rounds otherwise.
at::Tensor Upload::normalised(const at::Tensor& images) const {
  if (images.scalar_type() != at::kByte) return images;
  return at::index_select(table_, 0, images.flatten().to(at::kInt)).view(images.sizes());
}

MicroBatch Upload::take(const MicroBatch& batch) {
  if (!copies_) return {normalised(batch.images), batch.labels};
  Copies& copies = *copies_;
  const c10::Stream computing = copies.streams.getStream(device_);
  if (copies.computing.size() >= kMostAhead) {
    copies.computing.front().synchronize();
    copies.computing.pop_front();
  }
  copies.computing.emplace_back(device_.type());
  copies.computing.back().record(computing);

  MicroBatch there;
  c10::Event arrived(device_.type());
  {
    const c10::StreamGuard copying(copies.stream);
    there.labels = batch.labels.to(device_, /*non_blocking=*/true);
    there.images = normalised(batch.images.to(device_, /*non_blocking=*/true));
    arrived.record(copies.stream);
  }
  arrived.block(computing);
  // Their memory is the other stream's: it is not to be used again before this one is done with them.
  there.labels.record_stream(computing);
  there.images.record_stream(computing);
  return there;
}

}  // namespace ddprun::trainer
