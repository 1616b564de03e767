// Implementation of prepare_workspace.hpp.
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

void write_to_run_directory(Checkpointing::Setting& setting, const Process& process, const Membership& membership,
                            const RunIdentity& run, const RunLayout& layout) {
  setting.folder = layout.checkpoints();
  setting.keep_beside = [layout, config = process.config(), run] {
    keep_config(layout, config);
    std::error_code unknown;
    if (!std::filesystem::exists(layout.run(), unknown)) keep_run_identity(layout.run(), run);
  };
  setting.generation = {.term = read_run_term(layout.root), .restart = membership.generation()};
}

Checkpointing::Setting checkpoint_setting(const Process& process, const Membership& membership, const RunIdentity& run,
                                          const RunLayout& layout) {
  const TrainConfig& config = process.config();
  const CheckpointPlaces places = checkpoint_places(layout, config, process.environment().local_rank == 0);
  Checkpointing::Setting setting{.folder = {}, .config = config.checkpoint};
  if (places.of_node) setting.local_copies = places.local_copies;
  if (membership.peers().rank() == 0) write_to_run_directory(setting, process, membership, run, layout);
  if (process.device().is_cuda()) {
    const int gpu = process.device().index();
    setting.source = {.on_device = true,
                      .synchronize = [gpu] { cuda_module()->synchronize(gpu); },
                      .pin = [gpu](void* memory, std::size_t bytes) { return cuda_module()->pin(gpu, memory, bytes); },
                      .unpin = [](void* memory) { cuda_module()->unpin(memory); }};
  }
  if (config.checkpoint.every == CheckpointConfig::Every::kAuto) {
    setting.history = read_failure_history(layout.metrics());
  }
  return setting;
}

// Does nothing on ranks that write no checkpoints. If this rank wrote in an earlier group, it may have received the last step's
// evaluation from another rank since.
void begin_checkpoints(Process& process, Membership& membership, const TrainingState& state, const Run& run) {
  RankRecords& records = membership.records();
  const bool writes_copy = process.environment().local_rank == 0 && !process.config().checkpoint.local_dir.empty();
  if (!records.checkpointing && (membership.peers().rank() == 0 || writes_copy)) {
    records.checkpointing = std::make_unique<Checkpointing>(checkpoint_setting(process, membership, state.run, run.layout),
                                                            process.faults(), *records.log, process.status());
    records.checkpointing->begin();
    records.checkpointing->prepare(checkpoint_of(state, process.config(), run.length, {}, membership.peers().world()));
  }
  if (records.checkpointing && state.evaluation) {
    records.checkpointing->evaluated(state.evaluation->step, state.evaluation->result);
  }
}

// Writer for a rank whose data fails. Between two steps that rank has the whole state, and can save it while the others wait.
// Only the generation of the claim differs from group to group.
std::unique_ptr<Checkpointing> make_second_writer(Process& process, Membership& membership, const RunIdentity& run,
                                                  const RunLayout& layout) {
  Checkpointing::Setting setting{.folder = {}, .config = process.config().checkpoint};
  write_to_run_directory(setting, process, membership, run, layout);
  setting.config.background = false;  // no step follows that a background save could overlap with
  setting.second_writer = true;
  RankRecords& records = membership.records();
  return std::make_unique<Checkpointing>(std::move(setting), process.faults(), *records.log, process.status());
}

// Collective. First cuts the lines past the state's step, then adds the lines that a lost rank did not write.
std::unique_ptr<Ledger> open_ledger(const Process& process, Membership& membership, const StateSource& source, const Run& run) {
  const Peers& peers = membership.peers();
  const TrainingState& state = source.state();
  const Warn warn = membership.records().warn(channel::ErrorKind::kException);
  const auto folder = run.layout.ledger();
  // Rank 0 cuts before the ranks of other nodes. If all nodes share one folder, the others then find nothing to cut.
  if (peers.rank() == 0) cut_ledger(folder, state.step, warn);
  peers.meet();
  if (peers.rank() != 0 && process.environment().local_rank == 0) cut_ledger(folder, state.step, warn);
  peers.meet();  // no rank writes before all have cut
  if (source.origin() == StateOrigin::kSurvivors) {
    const GroupBefore before{.world = state.world, .since = state.world_since, .started_from = state.started_from};
    const auto gaps = ledger_gaps(folder, before, peers.rank(), peers.world());
    fill_ledger_gaps(folder, gaps, before, state.step, run.length, process.config().seed, warn);
    peers.meet();  // until here all ranks know the previous group: if one is lost now, the others fill its gaps
  }
  return std::make_unique<Ledger>(folder, peers.rank(), warn);
}

}  // namespace

void prepare_workspace(std::optional<Workspace>& work, Process& process, Membership& membership, StateSource& source,
                       const Run& run) {
  const Peers& peers = membership.peers();
  TrainingState& state = source.state();
  work.emplace(make_workspace({.config = process.config(),
                               .length = run.length,
                               .device = process.device(),
                               .task = process.task(),
                               .data = process.data(),
                               .faults = process.faults(),
                               .status = process.status(),
                               .log = *membership.records().log,
                               .gate = process.gate()},
                              peers, state, source.origin()));
  peers.arrive();  // waits until data sent by rank 0 has arrived on the device
  if (const std::string rate = batch_rule_text(process.config(), peers.world()); peers.rank() == 0 && !rate.empty()) {
    std::fprintf(stderr, "ddptrain: %s\n", rate.c_str());
  }
  begin_checkpoints(process, membership, state, run);
  work->checkpointing = membership.records().checkpointing.get();
  if (peers.rank() != 0) {
    work->second_writer = [&process, &membership, run_identity = state.run, layout = run.layout] {
      return make_second_writer(process, membership, run_identity, layout);
    };
  }
  if (process.device().is_cuda() && !shares_gpu(process.environment())) {
    const auto peak = gpu_peak(cuda_module()->device_name(process.device().index()), process.config().precision);
    membership.records().log->devices_can(peak.value_or(0) * peers.world());
  }
  work->trace = std::make_unique<StepTrace>(process.config().log, peers.rank(), process.device(), run.layout.traces(),
                                            membership.records().warn(channel::ErrorKind::kException));
  if (process.config().data.ledger) work->ledger = open_ledger(process, membership, source, run);
  if (state.world != peers.world()) {
    state.world = peers.world();
    state.world_since = state.step;
  }
  if (process.agent()) process.agent()->send(channel::GroupFormed{.generation = membership.generation(), .step = state.step});
}

}  // namespace ddprun::trainer
