#include "trainer/life/report_failure.hpp"

#include <cstdio>
#include <string>

#include "trainer/failure/crash_stack.hpp"
#include "trainer/failure/failure.hpp"
#include "trainer/failure/memory_fit.hpp"
#include "trainer/job/failure_message.hpp"

namespace ddprun::trainer {
namespace {

// Chooses a smaller batch size for the next process, writes it to a file, and adds the result to the message. If the file
// cannot be written, the next process will run out of memory again. Therefore the restart of that process counts against the
// restart limit.
channel::Shrink shrink(Failure& failure, Process& process, const std::filesystem::path& run_dir) {
  const TrainConfig& config = process.config();
  const Shrinking shrinking = shrink_after(process.status().phase(), config, process.environment().world_size);
  failure.message += shrinking.text;
  if (shrinking.how != channel::Shrink::kDone) return shrinking.how;
  const std::filesystem::path file = fit_file(run_dir);
  const std::string key = fit_key(config, process.device_and_memory());
  if (write_fit(file, key, smaller_fit(shrinking.fit, read_fit(file, key)))) return channel::Shrink::kDone;
  failure.message += " (not applied, because " + file.string() + " cannot be written)";
  return channel::Shrink::kNothingKnown;
}

}  // namespace

int report_failure(const std::exception_ptr& error, Process& process, const std::filesystem::path& run_dir) {
  Failure failure = classify(error);
  channel::Shrink shrinking = Shrinking{}.how;
  if (failure.kind == channel::ErrorKind::kOutOfMemory && !failure.of_data) shrinking = shrink(failure, process, run_dir);
  if (failure.kind == channel::ErrorKind::kLostPeer) {
    failure.message += " (after step " + std::to_string(process.status().step()) + ")";
  }
  const int rank = process.environment().rank;
  const std::string worker = rank < 0 ? "a standby" : "rank " + std::to_string(rank);
  std::fprintf(stderr, "ddptrain: %s: %s\n", worker.c_str(), failure.message.c_str());
  if (!process.subject().built_in) write_stack_of(error);  // the names of ddptrain's own C++ functions do not help its users
  if (process.agent()) send_failure(*process.agent(), failure, process.status(), process.device_name(), shrinking);
  return failure.exit_code;
}

}  // namespace ddprun::trainer
