#include "trainer/data/images.hpp"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <utility>

#include "trainer/data/fingerprint.hpp"
#include "trainer/data/pixels.hpp"

namespace ddprun::trainer {
namespace {

// Makes micro-batches from samples of a data set.
class BatchMaker {
 public:
  BatchMaker(const Dataset& data, Normalization normalization, ImageForm form)
      : shape_{data.images.size(1), data.images.size(2), data.images.size(3)},
        data_pixels_(data.images.const_data_ptr<std::uint8_t>()),
        data_labels_(data.labels.const_data_ptr<std::int64_t>()),
        table_(make_pixel_table(normalization)),
        form_(form) {}

  ImageForm form() const { return form_; }
  const PixelTable& table() const { return table_; }

  // `draw` returns the Augmentation of a sample.
  template <typename Draw>
  Batch augmented(const std::int64_t* samples, std::int64_t count, std::int64_t padding, Draw draw) const {
    return form_ == ImageForm::kPinnedBytes
               ? make<std::uint8_t>(samples, count,
                                    [&](std::int64_t sample, const std::uint8_t* from, std::uint8_t* to) {
                                      copy_augmented(from, shape_, padding, draw(sample), to);
                                    })
               : make<float>(samples, count, [&](std::int64_t sample, const std::uint8_t* from, float* to) {
                   normalize_augmented(from, shape_, table_, padding, draw(sample), to);
                 });
  }

  Batch plain(const std::int64_t* samples, std::int64_t count) const {
    return form_ == ImageForm::kPinnedBytes
               ? make<std::uint8_t>(
                     samples, count,
                     [&](std::int64_t, const std::uint8_t* from, std::uint8_t* to) { std::copy_n(from, shape_.pixels(), to); })
               : make<float>(samples, count, [&](std::int64_t, const std::uint8_t* from, float* to) {
                   normalize(from, shape_.pixels(), table_, to);
                 });
  }

  // `draw(sample)` returns the Augmentation of that sample.
  Batch block(std::int64_t first, std::int64_t count) const {
    Batch batch = empty(count);
    const std::uint8_t* const pixels = data_pixels_ + first * shape_.pixels();
    if (form_ == ImageForm::kPinnedBytes) {
      std::copy_n(pixels, count * shape_.pixels(), batch.tensors[0].mutable_data_ptr<std::uint8_t>());
    } else {
      normalize(pixels, count * shape_.pixels(), table_, batch.tensors[0].mutable_data_ptr<float>());
    }
    std::copy_n(data_labels_ + first, count, batch.tensors[1].mutable_data_ptr<std::int64_t>());
    return batch;
  }

 private:
  Batch empty(std::int64_t count) const {
    const bool bytes = form_ == ImageForm::kPinnedBytes;
    const bool pinned = bytes && at::globalContext().hasCUDA();  // without the CUDA module, memory can't be pinned
    return {.tensors = {at::detail::empty_cpu({count, shape_.channels, shape_.height, shape_.width},
                                              bytes ? at::kByte : at::kFloat, pinned),
                        at::detail::empty_cpu({count}, at::kLong, pinned)},
            .weight = static_cast<double>(count)};
  }

  template <typename To, typename Write>
  Batch make(const std::int64_t* samples, std::int64_t count, Write write) const {
    Batch batch = empty(count);
    auto* image = batch.tensors[0].mutable_data_ptr<To>();
    auto* label = batch.tensors[1].mutable_data_ptr<std::int64_t>();
    const std::int64_t pixels = shape_.pixels();
    for (std::int64_t i = 0; i < count; ++i) {
      write(samples[i], data_pixels_ + samples[i] * pixels, image + i * pixels);
      label[i] = data_labels_[samples[i]];
    }
    return batch;
  }

  PlaneShape shape_;
  const std::uint8_t* data_pixels_;
  const std::int64_t* data_labels_;
  PixelTable table_;
  ImageForm form_;
};

Description description_of(std::int64_t channels, std::int64_t height, std::int64_t width) {
  return {.tensors = {{.sizes = {channels, height, width}, .type = at::kFloat}, {.sizes = {}, .type = at::kLong}}};
}

bool follow_each_other(std::span<const std::int64_t> samples) {
  return std::ranges::adjacent_find(samples, [](std::int64_t a, std::int64_t b) { return b != a + 1; }) == samples.end();
}

class ImageSource : public Source {
 public:
  ImageSource(Dataset data, Normalization normalization, AugmentConfig augment, ImageForm form)
      : data_(std::move(data)), batches_(data_, normalization, form), augment_(augment) {}

  std::int64_t size() const override { return data_.size(); }

  Description describe() const override {
    return description_of(data_.images.size(1), data_.images.size(2), data_.images.size(3));
  }

  Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>& draws) const override {
    const auto count = static_cast<std::int64_t>(samples.size());
    if (draws && (augment_.crop_padding > 0 || augment_.flip)) {
      return batches_.augmented(samples.data(), count, augment_.crop_padding, [&](std::int64_t sample) {
        return draw_augmentation(augment_, draws->seed, draws->epoch, sample);
      });
    }
    return follow_each_other(samples) ? batches_.block(samples.front(), count) : batches_.plain(samples.data(), count);
  }

  // Normalizes on the device with a table look-up, because arithmetic on a GPU would not be bit-identical to the CPU: a GPU
  // multiplies by the reciprocal instead of dividing, which rounds differently.
  std::function<void(Batch&)> finish_on(c10::Device device) const override {
    if (batches_.form() == ImageForm::kNormalised) return {};
    const PixelTable& table = batches_.table();
    at::Tensor values = at::empty({static_cast<std::int64_t>(table.size())}, at::kFloat);
    std::copy(table.begin(), table.end(), values.mutable_data_ptr<float>());
    return [values = values.to(device)](Batch& batch) {
      at::Tensor& images = batch.tensors[0];
      images = at::index_select(values, 0, images.flatten().to(at::kInt)).view(images.sizes());
    };
  }

  std::string fingerprint() const override { return fingerprint_of(data_); }

 private:
  Dataset data_;
  BatchMaker batches_;
  AugmentConfig augment_;
};

}  // namespace

ImageForm image_form_for(c10::Device device) {
  return device.is_cpu() ? ImageForm::kNormalised : ImageForm::kPinnedBytes;
}

std::shared_ptr<const Source> image_source(Dataset data, Normalization normalization, AugmentConfig augment, ImageForm form) {
  return std::make_shared<ImageSource>(std::move(data), normalization, augment, form);
}

Description describe_images(const DataConfig& config) {
  const ImageSize size = image_size_of(config);
  return description_of(size.channels, size.height, size.width);
}

Sources read_images(const DataConfig& config, c10::Device device, const InflatedFiles& shared) {
  DataSets data = load_data_sets(config, shared);
  const ImageForm form = image_form_for(device);
  return {.train = image_source(std::move(data.train), data.normalization, config.augment, form),
          .test = image_source(std::move(data.test), data.normalization, {}, form)};
}

}  // namespace ddprun::trainer
