// Implementation of worker.hpp: the order in which the parts of a worker run. Each part is in a separate file.
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
#include "trainer/bench/run_bench.hpp"
#include "trainer/cost/step_trace.hpp"
#include "trainer/failure/crash_stack.hpp"
#include "trainer/failure/failure.hpp"
#include "trainer/failure/memory_fit.hpp"
#include "trainer/life/evaluate_saved.hpp"
#include "trainer/life/prepare_workspace.hpp"
#include "trainer/life/process.hpp"
#include "trainer/life/report_failure.hpp"
#include "trainer/life/run.hpp"
#include "trainer/life/state_source.hpp"
#include "trainer/life/subject.hpp"
#include "trainer/life/version.hpp"
#include "trainer/loop/short_batches.hpp"
#include "trainer/loop/train.hpp"
#include "trainer/metrics/baseline.hpp"
#include "trainer/parallel/data_parallel.hpp"
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

// Makes glibc keep freed memory. Activations are tens of megabytes that are allocated for one batch. By default glibc returns
// their memory to the kernel, which must zero it for the next batch. That took a third of an evaluation's time. Keeping the
// memory does not raise the process's peak.
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
  bool has_leaked_groups() { return process_.place().has_leaked_groups(); }

 private:
  void wait_for_place();
  int run_in_group();
  void leave_group();
  bool claim_directory();
  void write_missing_config_here();
  void agree_on_run();
  int finish(Outcome outcome);

  Process process_;
  Run run_;
  StateSource source_{process_};
  std::optional<Workspace> work_;
};

int Worker::run() {
  process_.begin();
  if (process_.options().standby) wait_for_place();
  process_.prepare_work();
  while (true) {
    // This is outside the try block, because no other rank is involved yet. So an error ends this worker.
    source_.prepare();
    try {
      return run_in_group();
    } catch (...) {
      if (!process_.recovery() || !process_.recovery()->survives(std::current_exception())) throw;
    }
    leave_group();
  }
}

// Prepares a standby as far as possible without a rank, and then blocks until the standby gets a rank.
void Worker::wait_for_place() {
  if (!process_.options().worker_per_gpu && is_certainly_cpu(process_.config().device)) {
    process_.use(c10::kCPU);
    source_.prepare();
    process_.await_data();
  }
  process_.wait_for_rank();
}

// Runs in one group: from the creation of the group to the end of the run, or until another rank is lost.
int Worker::run_in_group() {
  process_.join(source_.held(), bucket_memory(trained_parameters(source_.state())));
  source_.state().summation = process_.peers().summation();
  process_.await_data();
  if (!claim_directory()) return static_cast<int>(ExitCode::kDone);
  agree_on_run();
  process_.check_data(run_.layout.root);
  source_.agree(run_);
  prepare_workspace(work_, process_, source_, run_);
  const Outcome outcome = train(source_.state(), *work_);
  return finish(outcome);
}

void Worker::leave_group() {
  source_.leave();
  work_.reset();
  process_.place().leave_group();
}

// Claims the run directory, unless the agent has already done that. Returns false if the run is already finished.
bool Worker::claim_directory() {
  const Options& options = process_.options();
  const TrainConfig& config = process_.config();
  const Peers& peers = process_.peers();
  if (peers.world() > 1) agree_on_config(config, peers);
  const std::filesystem::path root = process_.run_directory();
  if (process_.agent()) {
    run_.layout.root = root;
    if (peers.rank() == 0) write_missing_config_here();
    return true;
  }
  const RunClaim claim = claim_run_directory(root, config, peers);
  run_.layout = claim.layout;
  if (!claim.finished || options.resume != Options::Resume::kAuto) return true;
  if (peers.rank() == 0) {
    std::printf(
        "already done: the run in %s has reached the last step of this config. Increase epochs to continue the run, or use "
        "another --run-dir to start a new one\n",
        root.c_str());
  }
  return false;
}

void Worker::write_missing_config_here() {
  try {
    write_missing_config(run_.layout, process_.config());
  } catch (const std::system_error& error) {
    process_.records().warn(channel::ErrorKind::kCheckpoint)(std::string(error.what()) + "; training continues");
  }
}

// This function needs the run directory, which stores the batch size that fits into memory. It also needs the data, which
// determines the length of an epoch.
void Worker::agree_on_run() {
  const Peers& peers = process_.peers();
  if (peers.world() > 1) agree_on_model(process_.task().fingerprint(), peers);
  agree_on_fit(process_.config(), fit_file(run_.layout.root), process_.device_and_memory(), peers);
  run_.length = run_length(process_.config(), process_.data().train->size());
  agree_on_length(run_.length, peers);
  if (peers.world() > 1) agree_on_columns(process_.data().plan, peers);
  // The check after this line is made only in the first group. If the check failed in a later group, the trained state would
  // be lost.
  if (process_.generation() != 0) return;
  const std::int64_t smallest = process_.task().smallest_batch(process_.data().train->describe());
  const std::string problem = short_batch_problem(process_.config(), run_.length, peers.world(), smallest);
  if (!problem.empty()) throw UsageError(problem);
}

int Worker::finish(Outcome outcome) {
  const TrainingState& state = source_.state();
  process_.records().log->end(state.step, outcome == Outcome::kDone ? "done" : "preempted",
                              skipped_steps(state.values).value_or(0));
  if (outcome == Outcome::kDone && state.evaluation && process_.peers().rank() == 0) {
    for (const std::string& line : baseline_lines(state.evaluation->result.figures))
      std::printf("ddptrain: %s\n", line.c_str());
    std::fflush(stdout);
  }
  process_.status().enter(channel::Phase::kDone);
  process_.faults().at(FaultPhase::kExit, state.step);
  process_.peers().barrier();
  work_.reset();  // the loader and the Reducer must be destroyed before the group that they use
  process_.place().shut_down();
  return static_cast<int>(outcome == Outcome::kDone ? ExitCode::kDone : ExitCode::kPreempted);
}

int Worker::fail(const std::exception_ptr& error) {
  const int exit_code = report_failure(error, process_, run_.layout.root);
  // Waits for a checkpoint that is being written, so that its steps are not lost. The agent can still kill the process earlier.
  process_.records().wait_for_save();
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
    const bool exit_immediately = worker->has_leaked_groups();
    worker.reset();  // destroys the parts of the worker in the opposite order of their construction
    if (exit_immediately) exit_now(exit_code);
    return exit_code;
  } catch (...) {
    exit_now(worker->fail(std::current_exception()));
  }
}

int run_worker_main(int argc, char** argv, const Subject& subject) {
  prepare_traces();
  write_stack_on_crash();
  try {
    const Options options = parse_options(std::vector<std::string>(argv + 1, argv + argc));
    switch (options.action) {
      case Options::Action::kVersion:
        std::puts(("ddptrain " + version_with_torch()).c_str());
        return 0;
      case Options::Action::kHelp:
        std::fputs((options.help + help_on_keys(subject)).c_str(), stdout);
        return 0;
      case Options::Action::kDescribe:
        std::fputs(description_json(description_of(subject, argv[0])).c_str(), stdout);
        return 0;
      case Options::Action::kSchema:
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
        exit_now(static_cast<int>(ExitCode::kDone));
      case Options::Action::kEvaluate:
        std::puts(evaluate_saved(options.evaluate, subject).c_str());
        exit_now(static_cast<int>(ExitCode::kDone));
      case Options::Action::kPredict:
        predict(options.predict);
        exit_now(static_cast<int>(ExitCode::kDone));
      case Options::Action::kTokenize:
        std::puts(tokenize(options.tokenize).c_str());
        return 0;
      case Options::Action::kBench:
        exit_now(run_bench(options.bench));
      case Options::Action::kTrain:
        break;
    }
    // All files have been flushed and closed, so LibTorch's static destructors would only cost time.
    exit_now(run_worker(options, subject));
  } catch (...) {
    const Failure failure = classify(std::current_exception());
    std::fprintf(stderr, "ddptrain: %s\n", failure.message.c_str());
    return failure.exit_code;
  }
}

}  // namespace ddprun::trainer
