// Implementation of sdk/include/ddprun/checkpointing.hpp, on top of ddptrain's checkpoint code (trainer/checkpoint).
#include <ddprun/checkpointing.hpp>

#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include "common/base/error.hpp"
#include "trainer/library/checkpointing_impl.hpp"
#include "trainer/library/state_impl.hpp"

namespace ddprun {
namespace {

using std::chrono::steady_clock;

double seconds_since(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

void warn_on_stderr(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
}

[[noreturn]] void refuse_to_save(std::int64_t step) {
  throw DivergedError("some weights are NaN or infinite after step " + std::to_string(step) + ", so no checkpoint was saved");
}

}  // namespace

Checkpointing::Checkpointing(std::filesystem::path folder, CheckpointOptions options)
    : impl_(new Impl{.folder = std::move(folder), .options = options, .warn = warn_on_stderr}) {
  if (impl_->folder.empty()) throw UsageError("expected a folder for the checkpoints, found an empty path");
  if (options.every_steps < 0 || options.keep < 1) {
    throw UsageError("expected every_steps of 0 or more and keep of 1 or more, found every_steps " +
                     std::to_string(options.every_steps) + " and keep " + std::to_string(options.keep));
  }
}

Checkpointing::~Checkpointing() = default;

bool Checkpointing::load(State& state) {
  if (!impl_->load(state.impl().training)) return false;
  state.impl().origin = trainer::StateOrigin::kCheckpoint;
  return true;
}

void Checkpointing::save(const State& state) {
  impl_->begin(state.impl().training, /*in_background=*/false);
  impl_->task.wait();
  impl_->rethrow_finished();
}

void Checkpointing::save_if_due(const State& state) {
  impl_->save_if_due(state.impl().training);
}

void Checkpointing::Impl::save_if_due(const trainer::TrainingState& state) {
  report_finished();
  if (!due(state)) return;
  try {
    begin(state, options.background);
    if (options.background) return;
    task.wait();
    rethrow_finished();
  } catch (const std::system_error& error) {
    warn_of(error);
  }
}

void Checkpointing::Impl::report_finished() {
  try {
    rethrow_finished();
  } catch (const std::system_error& error) {
    warn_of(error);
  }
}

void Checkpointing::Impl::warn_of(const std::system_error& error) const {
  warn(std::string("a checkpoint could not be saved: ") + error.what() +
       "; training continues, and older checkpoints are unchanged");
}

bool Checkpointing::Impl::due(const trainer::TrainingState& state) const {
  return options.every_steps > 0 && state.step > 0 && state.step % options.every_steps == 0 && state.step != newest;
}

bool Checkpointing::Impl::load(trainer::TrainingState& state) {
  bad.clear();
  for (trainer::Candidate& candidate : trainer::list_checkpoints(folder)) {
    trainer::judge_checkpoint(candidate);
    std::optional<trainer::CheckpointState> saved;
    try {
      if (candidate.problem.empty()) saved = trainer::load_checkpoint(candidate.path);
    } catch (const UsageError& problem) {
      candidate.problem = problem.what();
    }
    if (!saved) {
      warn("the checkpoint " + candidate.path.string() + " is not valid: " + candidate.problem);
      bad.push_back(std::move(candidate));
      continue;
    }
    trainer::take_tensors(state, *saved, candidate.path);
    state.values = saved->values;
    newest = state.step;
    return true;
  }
  if (!bad.empty()) {
    throw BadCheckpointError("no checkpoint in " + folder.string() +
                             " is valid: restore one of them, or use another folder to start from step 0");
  }
  return false;
}

void Checkpointing::Impl::set_bad_aside() {
  for (const trainer::Candidate& one : std::exchange(bad, {})) {
    try {
      warn("the invalid checkpoint " + one.path.string() + " is set aside as " + trainer::set_aside(one).string());
    } catch (const std::exception& error) {
      warn("the checkpoint " + one.path.string() + " cannot be set aside: " + error.what());
    }
  }
}

void Checkpointing::Impl::begin(const trainer::TrainingState& state, bool in_background) {
  const auto started = steady_clock::now();
  task.wait();
  report_finished();
  if (!claim) claim.emplace(folder, trainer::WriterClaim::next_generation(folder));
  trainer::CheckpointState live = trainer::saved_tensors(state);
  newest = state.step;
  if (!in_background) {
    if (!trainer::all_finite(state)) refuse_to_save(state.step);
    task.start([this, started, saved = std::move(live)] { write(saved, seconds_since(started)); });
    return;
  }
  trainer::CheckpointState copy = host_copy.take(live);
  const double pause_s = seconds_since(started);
  task.start([this, pause_s, saved = std::move(copy)] {
    if (!trainer::all_finite(saved)) refuse_to_save(saved.step);
    write(saved, pause_s);
  });
}

void Checkpointing::Impl::write(const trainer::CheckpointState& state, double pause_s) {
  const auto started = steady_clock::now();
  const auto at_stage = [this](const char* stage) {
    if (std::strcmp(stage, "writing") != 0 && std::strcmp(stage, "model-half") != 0) claim->check();
  };
  const trainer::SaveResult result = trainer::save_checkpoint(folder, state, {.newest = options.keep}, at_stage);
  if (!result.note.empty()) warn(result.note);
  if (!published) return;
  published({.step = state.step,
             .path = result.path.string(),
             .pause_s = pause_s,
             .save_s = seconds_since(started),
             .bytes = result.bytes});
}

void Checkpointing::Impl::rethrow_finished() {
  const auto error = task.take_finished();
  if (error && *error) std::rethrow_exception(*error);
}

}  // namespace ddprun
