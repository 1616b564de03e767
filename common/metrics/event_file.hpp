// TensorBoard event files with scalar summaries, readable by the real tensorboard: TFRecord framing (length, masked CRC-32C)
// around protobuf's Event messages (event_record.hpp names the source of field numbers). Rank 0 only; each opening makes a new
// file of the folder, and marks its start step (SessionLog START), so that TensorBoard drops what came after it in older files.
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
  // Makes <folder>/events.out.tfevents.<seconds>.<host>.<pid>.<n>, whose name sorts behind all that are there, since that is
  // the order TensorBoard reads in. Trouble is told once to `on_trouble`. A file that can't be made is
  // tried again with each figure, which are kept for it (1 MiB at most); after a write that failed nothing more is written.
  EventFile(const std::filesystem::path& folder, std::int64_t resume_step, std::function<void(const std::string&)> on_trouble);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  struct Scalar {
    std::string tag;
    double value;
  };
  // In the file when this returns, by one write: a checkpoint may be published next, and what comes before it is not done again
  // when the process is killed.
  void scalars(std::int64_t step, const std::vector<Scalar>& figures);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
