// TensorBoard event files with scalar summaries, readable by the real tensorboard: TFRecord framing (length, masked CRC-32C)
// around protobuf's Event messages (event_record.hpp names the source of field numbers). Rank 0 only; each opening makes a new
// file of the folder, and marks its start step (SessionLog START), so that TensorBoard drops what came after it in older files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace ddprun::trainer {

class EventFile {
 public:
  // Makes <folder>/events.out.tfevents.<seconds>.<host>.<pid>.<n>, whose name sorts behind all that are there, since that is
  // the order TensorBoard reads in. A write that fails is told once to `on_trouble` and then ignored.
  EventFile(const std::filesystem::path& folder, std::int64_t resume_step, std::function<void(const std::string&)> on_trouble);
  ~EventFile();  // flushes
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Kept in memory for at most a second of calls or some KiB.
  void scalar(const std::string& tag, std::int64_t step, double value);
  void flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::trainer
