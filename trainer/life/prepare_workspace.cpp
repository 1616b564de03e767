#include "trainer/life/prepare_workspace.hpp"

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "common/run_directory/run_lock.hpp"
#include "trainer/cost/gpu_peak.hpp"
#include "trainer/failure/failure_history.hpp"
#include "trainer/metrics/ledger_gaps.hpp"
#include "trainer/optim/batch_rule.hpp"
#include "trainer/parallel/device.hpp"
#include "trainer/resume/run_claim.hpp"

namespace ddprun::trainer {
namespace {

void write_to_run_directory(Checkpointing::Setting& setting, const Process& process, const RunIdentity& run,
                            const RunLayout& layout) {
  setting.folder = layout.checkpoints();
  setting.save_run_files = [layout, config = process.config(), run, plan = process.data().plan] {
    write_missing_config(layout, config);
    write_columns(layout, plan);
    std::error_code unknown;
    if (!std::filesystem::exists(layout.run(), unknown)) write_run_identity(layout.run(), run);
  };
  setting.generation = {.term = read_run_term(layout.root), .restart = process.generation()};
}

Checkpointing::Setting checkpoint_setting(const Process& process, const RunIdentity& run, const RunLayout& layout) {
  const TrainConfig& config = process.config();
  const CheckpointPlaces places = checkpoint_places(layout, config, process.environment().local_rank == 0);
  Checkpointing::Setting setting{.folder = {}, .config = config.checkpoint};
  if (places.owns_node_disk) setting.local_copies = places.local_copies;
  if (process.peers().rank() == 0) write_to_run_directory(setting, process, run, layout);
  if (process.device().is_cuda()) {
    const int gpu = process.device().index();
    setting.source = {.on_device = true,
                      .synchronize = [gpu] { cuda_module()->synchronize(gpu); },
                      .pin = [gpu](void* memory, std::size_t bytes) { return cuda_module()->pin(gpu, memory, bytes); },
                      .unpin = [](void* memory) { cuda_module()->unpin(memory); }};
  }
  if (config.checkpoint.every == CheckpointConfig::Every::kAuto) setting.history = read_failure_history(layout.metrics());
  return setting;
}

// Prepares the checkpoints of this rank, if the rank writes any. If `checkpointing` already exists, it still gets the
// evaluation, because this rank may have received the evaluation from another rank.
void begin_checkpoints(Process& process, const TrainingState& state, const Run& run) {
  RankRecords& records = process.records();
  const bool writes_copy = process.environment().local_rank == 0 && !process.config().checkpoint.local_dir.empty();
  if (!records.checkpointing && (process.peers().rank() == 0 || writes_copy)) {
    records.checkpointing = std::make_unique<Checkpointing>(checkpoint_setting(process, state.run, run.layout),
                                                            process.faults(), *records.log, process.status());
    records.checkpointing->begin();
    records.checkpointing->prepare(checkpoint_of(state, process.config(), run.length, {}, process.peers().world()));
  }
  if (records.checkpointing && state.evaluation) {
    records.checkpointing->evaluated(state.evaluation->step, state.evaluation->result);
  }
}

// Returns a checkpoint writer for a rank that cannot read its data. Between two steps this rank has the whole state, so it can
// save the state while the other ranks wait. The writer is for the current group only, because the generation in its claim
// differs between groups.
std::unique_ptr<Checkpointing> make_second_writer(Process& process, const RunIdentity& run, const RunLayout& layout) {
  Checkpointing::Setting setting{.folder = {}, .config = process.config().checkpoint};
  write_to_run_directory(setting, process, run, layout);
  setting.config.background = false;  // no step follows, so a background save has nothing to overlap with
  setting.second_writer = true;
  RankRecords& records = process.records();
  return std::make_unique<Checkpointing>(std::move(setting), process.faults(), *records.log, process.status());
}

// This call is collective. Opens the ledger (the record of the samples that each step used). Removes the lines after the
// state's step, and adds the lines that a lost rank did not write.
std::unique_ptr<Ledger> open_ledger(Process& process, const StateSource& source, const Run& run) {
  const Peers& peers = process.peers();
  const TrainingState& state = source.state();
  const Warn warn = process.records().warn(channel::ErrorKind::kException);
  const auto folder = run.layout.ledger();
  // Rank 0 removes lines before the ranks of other nodes do. So if all nodes share one folder, the other ranks find no lines to
  // remove.
  if (peers.rank() == 0) cut_ledger(folder, state.step, warn);
  peers.barrier();
  if (peers.rank() != 0 && process.environment().local_rank == 0) cut_ledger(folder, state.step, warn);
  peers.barrier();  // no rank writes new lines before all ranks have removed the old ones
  if (source.origin() == StateOrigin::kSurvivors) {
    const PreviousGroup before{.world = state.world, .since = state.world_since, .started_from = state.started_from};
    const auto gaps = ledger_gaps(folder, before, peers.rank(), peers.world());
    fill_ledger_gaps(folder, gaps, before, state.step, run.length, process.config().seed, warn);
    // Until this barrier, all ranks still have the data of the previous group. So if a rank is lost before the barrier, the
    // other ranks can add that rank's missing lines.
    peers.barrier();
  }
  return std::make_unique<Ledger>(folder, peers.rank(), warn);
}

}  // namespace

void prepare_workspace(std::optional<Workspace>& work, Process& process, StateSource& source, const Run& run) {
  const Peers& peers = process.peers();
  TrainingState& state = source.state();
  work.emplace(make_workspace({.config = process.config(),
                               .length = run.length,
                               .device = process.device(),
                               .task = process.task(),
                               .data = process.data(),
                               .faults = process.faults(),
                               .status = process.status(),
                               .log = *process.records().log,
                               .gate = process.place().gate()},
                              peers, state, source.origin()));
  peers.sync_device();  // blocks until the data sent by rank 0 has arrived on the device
  if (const std::string rate = batch_rule_text(process.config(), peers.world()); peers.rank() == 0 && !rate.empty()) {
    std::fprintf(stderr, "ddptrain: %s\n", rate.c_str());
  }
  begin_checkpoints(process, state, run);
  work->checkpointing = process.records().checkpointing.get();
  if (peers.rank() != 0) {
    work->second_writer = [&process, run_identity = state.run, layout = run.layout] {
      return make_second_writer(process, run_identity, layout);
    };
  }
  if (process.device().is_cuda() && !shares_gpu(process.environment())) {
    const auto peak = gpu_peak(cuda_module()->device_name(process.device().index()), process.config().precision);
    process.records().log->set_peak_flops(peak.value_or(0) * peers.world());
  }
  work->trace = std::make_unique<StepTrace>(process.config().log, peers.rank(), process.device(), run.layout.traces(),
                                            process.records().warn(channel::ErrorKind::kException));
  if (process.config().data.ledger) work->ledger = open_ledger(process, source, run);
  if (state.world != peers.world()) {
    state.world = peers.world();
    state.world_since = state.step;
  }
  if (process.agent()) process.agent()->send(channel::GroupFormed{.generation = process.generation(), .step = state.step});
}

}  // namespace ddprun::trainer
