// Brings micro-batches to the device that computes. To a GPU pictures travel as bytes and are normalised there, on a stream of
// their own, so that the next batch comes while the last one is computed. Everything is enqueued; the host waits only when it
// is kMostAhead batches ahead, or memory on the device would grow with its lead.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>

#include "trainer/data/dataset.hpp"
#include "trainer/data/loader.hpp"

namespace ddprun::trainer {

// What is to be asked of the loader for that device.
Pictures pictures_for(c10::Device device);

class Upload {
 public:
  static constexpr std::size_t kMostAhead = 4;

  Upload(Normalization normalization, c10::Device device);
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // float32 images and labels on the device, for the stream that is current there. Pictures that are normalised already are
  // left so.
  MicroBatch take(const MicroBatch& batch);

 private:
  struct Copies;  // null for the CPU
  at::Tensor normalised(const at::Tensor& images) const;

  c10::Device device_;
  at::Tensor table_;  // the value of each byte, on the device; bitwise the loader's
  std::unique_ptr<Copies> copies_;
};

}  // namespace ddprun::trainer
