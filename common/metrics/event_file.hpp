// TensorBoard event files with scalar summaries, readable by the real tensorboard: TFRecord framing (length, masked CRC-32C)
// around protobuf's Event messages (event_record.hpp names the source of field numbers). Rank 0 only. Each opening creates a
// new file in the folder and marks its start step (SessionLog START). So TensorBoard drops later steps of older files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ddprun {

class EventFile {
 public:
  // Creates <folder>/events.out.tfevents.<seconds>.<host>.<pid>.<n>. Its name sorts after all existing ones, since TensorBoard
  // reads files in that order. The first problem is reported to `on_trouble`. If the file can't be created, each call of
  // scalars() retries, and the metrics are kept until then (1 MiB at most). After a failed write nothing more is written.
  EventFile(const std::filesystem::path& folder, std::int64_t resume_step, std::function<void(const std::string&)> on_trouble);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  struct Scalar {
    std::string tag;
    double value;
  };
  // The metrics are in the file when this returns, by one write. A checkpoint may be published next, and after a kill the steps
  // before it are not repeated.
  void scalars(std::int64_t step, const std::vector<Scalar>& figures);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
