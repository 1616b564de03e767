// Implementation of report_failure.hpp.
#include "trainer/life/report_failure.hpp"

#include <cstdio>
#include <string>

#include "trainer/failure/crash_stack.hpp"
#include "trainer/failure/failure.hpp"
#include "trainer/failure/memory_fit.hpp"
#include "trainer/job/last_words.hpp"

namespace ddprun::trainer {
namespace {

// Completes the message. If the smaller size cannot be written, the next process would run out of memory again. So that restart
// is charged to the budget.
channel::Shrink shrink(Failure& failure, Process& process, const std::filesystem::path& run_dir) {
  const TrainConfig& config = process.config();
  const Shrinking shrinking = shrink_after(process.status().phase(), config, process.environment().world_size);
  failure.message += shrinking.text;
  if (shrinking.how != channel::Shrink::kDone) return shrinking.how;
  const std::filesystem::path file = fit_file(run_dir);
  const std::string key = fit_key(config, process.device_and_memory());
  if (write_fit(file, key, smaller_fit(shrinking.fit, read_fit(file, key)))) return channel::Shrink::kDone;
  failure.message += " (but " + file.string() + " cannot be written)";
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
  const std::string who = rank < 0 ? "a standby" : "rank " + std::to_string(rank);
  std::fprintf(stderr, "ddptrain: %s: %s\n", who.c_str(), failure.message.c_str());
  if (!process.subject().built_in) write_stack_of(error);  // the built-in ddptrain: its users need no C++ functions
  if (process.agent()) tell_failure(*process.agent(), failure, process.status(), process.device_name(), shrinking);
  return failure.exit_code;
}

}  // namespace ddprun::trainer
