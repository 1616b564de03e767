// Implementation of worker.hpp: the order of a worker's life. Each part has a file of its own.
#include "trainer/life/worker.hpp"

#include <malloc.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "common/base/error.hpp"
#include "common/config/schema.hpp"
#include "trainer/cost/step_trace.hpp"
#include "trainer/failure/crash_stack.hpp"
#include "trainer/failure/failure.hpp"
#include "trainer/failure/memory_fit.hpp"
#include "trainer/life/evaluate_saved.hpp"
#include "trainer/life/membership.hpp"
#include "trainer/life/prepare_workspace.hpp"
#include "trainer/life/process.hpp"
#include "trainer/life/report_failure.hpp"
#include "trainer/life/run.hpp"
#include "trainer/life/state_source.hpp"
#include "trainer/life/subject.hpp"
#include "trainer/life/version.hpp"
#include "trainer/loop/short_batches.hpp"
#include "trainer/loop/train.hpp"
#include "trainer/parallel/device.hpp"
#include "trainer/resume/run_claim.hpp"
#include "trainer/saved/export_weights.hpp"
#include "trainer/saved/predict.hpp"
#include "trainer/saved/text_generation.hpp"
#include "trainer/saved/tokenize.hpp"
#include "trainer/state/skipped_steps.hpp"
#include "trainer/surroundings/options.hpp"
#include "trainer/surroundings/signals.hpp"

namespace ddprun::trainer {
namespace {

// Activations are tens of megabytes that live for one batch. By default glibc returns each to the kernel, which zeroes it again
// for the next batch: a third of an evaluation's time. Keeping it does not raise the peak.
void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kOneGib = 1 << 30;
  ::mallopt(M_MMAP_THRESHOLD, kOneGib);
  ::mallopt(M_TRIM_THRESHOLD, kOneGib);
#endif
}

// The parts of the worker in order of construction; they are destroyed in the opposite order.
class Worker {
 public:
  Worker(const Options& options, const Subject& subject) : process_(options, subject) {}

  int run();
  // Reports the error to the agent and on stderr. Returns the exit code.
  int fail(const std::exception_ptr& error);
  bool left_groups_behind() const { return membership_.left_groups_behind(); }

 private:
  void wait_for_place();
  int run_in_group();
  void leave_group();
  bool claim_directory();
  void keep_config_here();
  void agree_on_run();
  int finish(Outcome outcome);

  Process process_;
  Membership membership_{process_};
  Run run_;
  StateSource source_{process_};
  std::optional<Workspace> work_;
};

int Worker::run() {
  process_.begin();
  if (process_.options().standby) wait_for_place();
  process_.take_up_work();
  while (true) {
    // Outside the try: no peer takes part yet, so an error here is this worker's own and ends it.
    source_.prepare();
    try {
      return run_in_group();
    } catch (...) {
      if (!process_.recovery() || !process_.recovery()->survives(std::current_exception())) throw;
    }
    leave_group();
  }
}

// For a standby: does the work that needs no rank, then sleeps until it has one.
void Worker::wait_for_place() {
  if (!process_.options().worker_per_gpu && is_certainly_cpu(process_.config().device)) {
    process_.use(c10::kCPU);
    source_.prepare();
    process_.await_data();
  }
  process_.wait_for_rank();
}

// Runs from the forming of a group to the end of the run, or to the loss of a peer.
int Worker::run_in_group() {
  membership_.join(source_.held());
  process_.await_data();
  if (!claim_directory()) return static_cast<int>(ExitCode::kDone);
  agree_on_run();
  process_.check_data(run_.layout.root);
  source_.agree(membership_, run_);
  prepare_workspace(work_, process_, membership_, source_, run_);
  const Outcome outcome = train(source_.state(), *work_);
  return finish(outcome);
}

void Worker::leave_group() {
  source_.leave();
  work_.reset();
  membership_.leave();
}

// Returns false if nothing is left to do.
bool Worker::claim_directory() {
  const Options& options = process_.options();
  const TrainConfig& config = process_.config();
  const Peers& peers = membership_.peers();
  if (peers.world() > 1) agree_on_config(config, peers);
  const std::filesystem::path root =
      std::filesystem::absolute(options.run_dir.empty() ? std::filesystem::path("runs") / config.name : options.run_dir);
  if (process_.agent()) {
    run_.layout.root = root;
    if (peers.rank() == 0) keep_config_here();
    return true;
  }
  const RunClaim claim = claim_run_directory(root, config, peers);
  run_.layout = claim.layout;
  if (!claim.finished || options.resume != Options::Resume::kAuto) return true;
  if (peers.rank() == 0) {
    std::printf(
        "already done: %s has the checkpoint of this config's last step. More epochs continue it; another --run-dir starts "
        "anew\n",
        root.c_str());
  }
  return false;
}

void Worker::keep_config_here() {
  try {
    keep_config(run_.layout, process_.config());
  } catch (const std::system_error& error) {
    membership_.records().warn(channel::ErrorKind::kCheckpoint)(std::string(error.what()) + "; training goes on");
  }
}

// Needs the run directory, which holds the memory fit, and the data, which determines the length of an epoch.
void Worker::agree_on_run() {
  const Peers& peers = membership_.peers();
  if (peers.world() > 1) agree_on_model(process_.task().fingerprint(), peers);
  agree_on_fit(process_.config(), fit_file(run_.layout.root), process_.device_and_memory(), peers);
  run_.length = run_length(process_.config(), process_.data().train->size());
  agree_on_length(run_.length, peers);
  // Later groups continue: refusing them would throw away a trained state.
  if (membership_.generation() != 0) return;
  const std::int64_t smallest = process_.task().smallest_batch(process_.data().train->describe());
  const std::string problem = short_batch_problem(process_.config(), run_.length, peers.world(), smallest);
  if (!problem.empty()) throw UsageError(problem);
}

int Worker::finish(Outcome outcome) {
  const TrainingState& state = source_.state();
  membership_.records().log->end(state.step, outcome == Outcome::kDone ? "done" : "preempted",
                                 skipped_steps(state.values).value_or(0));
  process_.status().enter(channel::Phase::kDone);
  process_.faults().at(FaultPhase::kExit, state.step);
  membership_.peers().meet();
  work_.reset();  // loader and Reducer end before the group that they use
  membership_.shut_down();
  return static_cast<int>(outcome == Outcome::kDone ? ExitCode::kDone : ExitCode::kPreempted);
}

int Worker::fail(const std::exception_ptr& error) {
  const int exit_code = report_failure(error, process_, run_.layout.root);
  // Wait for a checkpoint that is being written: it is worth the time. The agent can still end the process sooner.
  membership_.records().settle();
  return exit_code;
}

std::string help_on_keys(const Subject& subject) {
  const std::string keys = task_keys_help(TaskConfig(subject.keys));
  return keys.empty() ? "" : "\nKeys of this program in train.json:\n" + keys;
}

ExportOptions exported_by(const Options& options) {
  return {.from = options.export_from, .to = options.export_to, .config = options.config};
}

}  // namespace

int run_worker(const Options& options, const Subject& subject) {
  block_stop_signals();
  keep_freed_memory();
  auto worker = std::make_unique<Worker>(options, subject);
  try {
    const int exit_code = worker->run();
    const bool end_at_once = worker->left_groups_behind();
    worker.reset();  // destroys the parts in order
    if (end_at_once) leave_now(exit_code);
    return exit_code;
  } catch (...) {
    leave_now(worker->fail(std::current_exception()));
  }
}

int run_worker_main(int argc, char** argv, const Subject& subject) {
  prepare_traces();
  write_stack_on_crash();
  try {
    const Options options = parse_options(std::vector<std::string>(argv + 1, argv + argc));
    switch (options.action) {
      case Options::Action::kSayVersion:
        std::puts(("ddptrain " + version_with_torch()).c_str());
        return 0;
      case Options::Action::kSayHelp:
        std::fputs((options.help + help_on_keys(subject)).c_str(), stdout);
        return 0;
      case Options::Action::kDescribe:
        std::fputs(description_json(description_of(subject, argv[0])).c_str(), stdout);
        return 0;
      case Options::Action::kSaySchema:
        std::fputs(config_schema_json(TaskConfig(subject.keys)).c_str(), stdout);
        return 0;
      case Options::Action::kExportWeights:
        std::puts(export_weights(exported_by(options)).c_str());
        return 0;
      case Options::Action::kExportAdapter:
        std::puts(export_adapter(exported_by(options)).c_str());
        return 0;
      case Options::Action::kGenerate:
        generate_text(options.generate);
        leave_now(static_cast<int>(ExitCode::kDone));
      case Options::Action::kEvaluate:
        std::puts(evaluate_saved(options.evaluate, subject).c_str());
        leave_now(static_cast<int>(ExitCode::kDone));
      case Options::Action::kPredict:
        predict(options.predict);
        leave_now(static_cast<int>(ExitCode::kDone));
      case Options::Action::kTokenize:
        std::puts(tokenize(options.tokenize).c_str());
        return 0;
      case Options::Action::kTrain:
        break;
    }
    // All files are closed and flushed by now. LibTorch's static destructors would only cost time.
    leave_now(run_worker(options, subject));
  } catch (...) {
    const Failure failure = classify(std::current_exception());
    std::fprintf(stderr, "ddptrain: %s\n", failure.message.c_str());
    return failure.exit_code;
  }
}

}  // namespace ddprun::trainer
