#include "trainer/life/worker.hpp"

#include <malloc.h>
#include <sys/prctl.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/version.hpp"
#include "common/config/parse_config.hpp"
#include "common/run_directory/run_directory.hpp"
#include "common/run_directory/run_lock.hpp"
#include "common/system/atomic_file.hpp"
#include "common/system/realtime.hpp"
#include "trainer/checkpoint/local_copies.hpp"
#include "trainer/failure/failure.hpp"
#include "trainer/failure/failure_history.hpp"
#include "trainer/failure/memory_fit.hpp"
#include "trainer/life/inflated_sharing.hpp"
#include "trainer/life/recovery.hpp"
#include "trainer/loop/train.hpp"
#include "trainer/metrics/ledger_gaps.hpp"
#include "trainer/parallel/device.hpp"
#include "trainer/parallel/process_group.hpp"
#include "trainer/resume/kept_history.hpp"
#include "trainer/resume/resume.hpp"
#include "trainer/resume/resumed_state.hpp"
#include "trainer/resume/run_claim.hpp"
#include "trainer/state/state_comparison.hpp"
#include "trainer/state/state_sharing.hpp"
#include "trainer/surroundings/agent_channel.hpp"
#include "trainer/surroundings/environment.hpp"
#include "trainer/surroundings/signals.hpp"
#include "trainer/surroundings/standby.hpp"
#include "trainer/surroundings/stopping.hpp"

namespace ddprun::trainer {
namespace {

std::string torch_and_version() {
  return std::string(kVersion) + " (LibTorch " + TORCH_VERSION + ")";
}

// One that ends does so at once; a standby is there before this time is over.
constexpr std::chrono::milliseconds kPatienceWithCollectives{100};

// Activations are tens of megabytes that live for one batch. By default glibc gives each back to the kernel, which zeroes it
// again for the next batch: a third of an evaluation's time. Kept, the peak stays the same.
void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kOneGib = 1 << 30;
  ::mallopt(M_MMAP_THRESHOLD, kOneGib);
  ::mallopt(M_TRIM_THRESHOLD, kOneGib);
#endif
}

struct Data {
  Dataset train;
  Dataset test;
  Normalization normalization;
};

Data load_data(const DataConfig& config, const InflatedFiles& shared) {
  auto test = std::async(std::launch::async, [&] { return load_idx(config, Split::kTest, shared); });
  Data data;
  data.train = load_idx(config, Split::kTrain, shared);
  data.normalization = normalization_of(config, data.train);
  data.test = test.get();
  return data;
}

// What the worker is made of, in the order in which it comes to be; it is taken apart in the opposite order.
class Worker {
 public:
  explicit Worker(const Options& options) : options_(options) {}

  int run();
  // Reports the error to the agent and on stderr. Returns the exit code.
  int fail(const std::exception_ptr& error);
  // Threads are left that use LibTorch: this process must not take it apart.
  bool left_groups_behind() const { return groups_left_behind_; }

 private:
  int run_in_group();
  void leave_group();
  void connect_agent();
  void read_config();
  void check_share() const;
  void read_faults();
  void begin_on(c10::Device device);
  void wait_for_place();
  void join_peers();
  void move_to(const channel::Regroup& order);
  bool claim_directory();
  std::filesystem::path fit_file() const;
  void take_what_fits();
  void make_state();
  void prepare_state();
  void prepare_workspace();
  void open_ledger();
  void keep_history();
  void keep_config();
  void keep_identity();
  CheckpointPlaces checkpoint_places() const;
  Checkpointing::Setting checkpoint_setting() const;
  int finish(Outcome outcome);
  Warn warn();
  Warn ledger_warn();

  const Options& options_;
  WorkerEnvironment environment_;
  TrainConfig config_;
  Faults faults_;
  std::optional<c10::Device> device_;
  StopGate gate_;
  Status status_;
  std::unique_ptr<Stopping> stopping_;
  std::unique_ptr<Recovery> recovery_;  // with an agent
  Standby standby_;
  std::unique_ptr<AgentChannel> agent_;
  std::unique_ptr<SignalWatch> signals_;
  InflatedSharing inflated_;
  std::future<Data> data_coming_;
  Data data_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  int generation_ = 0;  // of the group
  bool groups_left_behind_ = false;
  std::optional<Peers> peers_;
  std::optional<RunLog> log_;
  RunClaim directory_;
  RunLength length_;
  TrainingState state_;
  bool state_is_new_ = false;    // made by a standby, for its first group
  bool state_is_whole_ = false;  // it is that after state_.step steps
  bool state_is_survivors_ = false;
  std::unique_ptr<Checkpointing> checkpointing_;  // between two workspaces
  std::unique_ptr<Workspace> work_;
};

int Worker::run() {
  environment_ = options_.standby ? read_standby_environment() : read_environment();
  connect_agent();
  read_config();
  if (options_.standby) wait_for_place();
  read_faults();
  if (!device_) begin_on(choose_device(config_.device, environment_));
  if (recovery_ && group_can_be_broken(*device_, environment_)) agent_->send(channel::Regroupable{});
  while (true) {
    try {
      return run_in_group();
    } catch (...) {
      if (!recovery_ || !recovery_->survives(std::current_exception())) throw;
    }
    leave_group();
  }
}

// The device is known before the first tensor; the data is read beside the model's and the group's start.
void Worker::begin_on(c10::Device device) {
  device_ = device;
  data_coming_ = std::async(std::launch::async, [this, files = inflated_.files(environment_, agent_.get())] {
    return load_data(config_.data, files);
  });
}

// As a standby: what needs no rank is done, then it sleeps until it has one.
void Worker::wait_for_place() {
  if (is_certainly_cpu(config_.device)) {
    begin_on(c10::kCPU);
    make_state();
    state_is_new_ = true;
    data_ = data_coming_.get();
  }
  agent_->send(channel::StandbyReady{});
  take_place(environment_, standby_.wait());
}

// From the making of a group to the end of the run, or to the loss of a peer.
int Worker::run_in_group() {
  if (!state_is_whole_ && !std::exchange(state_is_new_, false)) make_state();  // before peers are waited for
  join_peers();
  if (data_coming_.valid()) data_ = data_coming_.get();
  if (!claim_directory()) return static_cast<int>(ExitCode::kDone);
  prepare_state();
  prepare_workspace();
  const Outcome outcome = train(state_, *work_);
  return finish(outcome);
}

// What the state needs no more goes; a checkpoint that is being written is none of the group's business.
void Worker::leave_group() {
  if (!undo_step(state_)) state_is_whole_ = false;
  if (work_) checkpointing_ = std::move(work_->checkpointing);
  work_.reset();
  peers_.reset();
  if (group_ && !recovery_->breaker().collectives().all_ended(kPatienceWithCollectives)) {
    // Gloo's thread waits in a collective that was cut off, maybe for half an hour, and the group's end would wait for it.
    [[maybe_unused]] c10d::ProcessGroup* const left_behind = group_.release();
    groups_left_behind_ = true;
  }
  group_.reset();
  store_.reset();
}

void Worker::connect_agent() {
  if (environment_.channel_fd < 0) {
    stopping_ = std::make_unique<StoppingByStore>(gate_);
  } else {
    auto by_agent = std::make_unique<StoppingByAgent>(gate_);
    recovery_ = std::make_unique<Recovery>(environment_.generation, environment_.world_size);
    channel::Hello hello;
    hello.version = torch_and_version();
    hello.pid = ::getpid();
    agent_ = std::make_unique<AgentChannel>(
        environment_.channel_fd, hello,
        [this, stop = by_agent.get(), recovery = recovery_.get()](const channel::FromAgent& message) {
          if (std::holds_alternative<channel::Where>(message)) {
            // A debugger started by the agent is no ancestor of ours; where only those may look (Yama), this lets it.
            ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
            status_.tell_position();
          }
          stop->on_message(message);
          recovery->on_message(message);
          standby_.on_message(message);
        },
        [this, recovery = recovery_.get()] {
          standby_.on_agent_gone();
          recovery->on_agent_gone();
        });
    by_agent->attach(*agent_);
    recovery_->attach(*agent_);
    stopping_ = std::move(by_agent);
    status_.attach(agent_.get());
  }
  signals_ = std::make_unique<SignalWatch>([this](int signal) { stopping_->on_signal(signal); });
}

// They are meant for a rank, and for a restart.
void Worker::read_faults() {
  if (const char* fault = std::getenv("DDPTRAIN_FAULT"); fault != nullptr && *fault != '\0') {
    faults_ = Faults(parse_fault(fault), environment_.rank, environment_.restart_count);
  } else if (const char* rehearsal = std::getenv("DDPTRAIN_CHAOS"); rehearsal != nullptr && *rehearsal != '\0') {
    faults_ = Faults(parse_faults(rehearsal, "--chaos"), environment_.rank, environment_.restart_count,
                     std::filesystem::path(options_.run_dir) / "chaos");
  }
}

// Everything that can be wrong without a peer or a file of the run being touched.
void Worker::read_config() {
  config_ = load_config(options_.config, options_.overrides);
  check_share();
}

void Worker::check_share() const {
  if (config_.batch_size < environment_.world_size) {
    throw UsageError("batch_size is " + std::to_string(config_.batch_size) + ", which " +
                     std::to_string(environment_.world_size) + " workers can't share; use a batch_size of at least " +
                     std::to_string(environment_.world_size) + " or fewer workers");
  }
}

// Its place in a group of other machines, or of others than before; what belongs to the old one goes.
void Worker::move_to(const channel::Regroup& order) {
  if (order.rank < 0) return;
  if (order.rank != environment_.rank) {
    if (checkpointing_) checkpointing_->settle();
    checkpointing_.reset();
    log_.reset();
  }
  environment_.rank = order.rank;
  environment_.world_size = order.world_size;
  environment_.group_rank = order.group_rank;
  environment_.group_world_size = order.group_world_size;
  check_share();
}

// A job of one has no peers and needs neither store nor group.
void Worker::join_peers() {
  status_.enter(channel::Phase::kJoining);
  GroupBreaker* const breaker = recovery_ ? &recovery_->breaker() : nullptr;
  generation_ = environment_.restart_count;
  if (recovery_) {
    const channel::Regroup order = recovery_->begin_group(state_is_whole_ ? state_.step : -1);
    generation_ = order.generation;
    move_to(order);
    if (order.rank >= 0) inflated_.offer_again(environment_, *agent_);
  }
  const int world = environment_.world_size;
  faults_.at(FaultPhase::kJoining, state_.step);
  if (world > 1) {
    const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(config_.ddp.timeout_s * 1000));
    store_ = make_store(environment_, agent_.get(), timeout, generation_);
    if (agent_) meet_in_store(environment_, store_, generation_, timeout);
    group_ = make_process_group(environment_, store_, *device_, generation_, timeout, breaker);
  }
  peers_.emplace(group_, environment_.rank, world, *device_, breaker);
  if (!log_) log_.emplace(status_, environment_.rank);
  if (auto* by_store = dynamic_cast<StoppingByStore*>(stopping_.get())) {
    by_store->attach(store_, environment_.rank, world, environment_.restart_count);
  }
}

// False: there is nothing left to do.
bool Worker::claim_directory() {
  if (peers_->world() > 1) agree_on_config(config_, *peers_);
  const std::filesystem::path root =
      std::filesystem::absolute(options_.run_dir.empty() ? std::filesystem::path("runs") / config_.name : options_.run_dir);
  if (agent_) {
    directory_.layout.root = root;
    if (peers_->rank() == 0) keep_config();
    return true;
  }
  directory_ = claim_run_directory(root, config_, *peers_);
  if (!directory_.finished || options_.resume != Options::Resume::kAuto) return true;
  if (peers_->rank() == 0) {
    std::printf(
        "already done: %s has the checkpoint of this config's last step. More epochs continue it; another --run-dir starts "
        "anew\n",
        root.c_str());
  }
  return false;
}

// Where nodes share no disk, rank 0 may have come to one whose agent never led the job: what is saved there from now on needs
// the config beside it, or no start could go on from it.
void Worker::keep_config() {
  const std::filesystem::path file = directory_.layout.config();
  std::error_code unknown;
  if (std::filesystem::exists(file, unknown)) return;
  try {
    std::filesystem::create_directories(directory_.layout.root);
    write_file_atomically(file, to_json_text(config_));
  } catch (const std::system_error& error) {
    warn()(std::string(error.what()) + "; training goes on");
  }
}

std::filesystem::path Worker::fit_file() const {
  return directory_.layout.root / "memory-fit.json";
}

// Without a shared disk each node knows what its own ranks have learned; all ranks go by the smallest.
void Worker::take_what_fits() {
  constexpr std::int64_t kAnything = std::numeric_limits<std::int64_t>::max();
  const MemoryFit own = read_fit(fit_file(), fit_key(config_, device_->str()));
  std::array<std::int64_t, 2> sizes{own.micro_batch_size, own.eval_batch_size};
  for (std::int64_t& size : sizes) size = size > 0 ? size : kAnything;
  peers_->smallest_of_each(sizes);
  for (std::int64_t& size : sizes) size = size == kAnything ? 0 : size;
  const MemoryFit fit{sizes[0], sizes[1]};
  if (fit == MemoryFit{}) return;
  apply_fit(config_, fit);
  if (peers_->rank() != 0) return;
  std::fprintf(stderr, "ddptrain: as learned from running out of memory (%s): micro-batch %lld, evaluation batch %lld\n",
               fit_file().c_str(), static_cast<long long>(config_.micro_batch_size),
               static_cast<long long>(config_.eval_batch_size));
}

void Worker::make_state() {
  const ImageSize size = image_size_of(config_.data);
  state_ = new_training_state(config_, {.channels = size.channels, .height = size.height, .width = size.width}, *device_);
  // The first layer's gradient is the last one: from there on this rank only waits for the others'.
  state_.parameters.front().tensor.register_hook([this](const at::Tensor&) { status_.at(channel::Stage::kBackward); });
}

void Worker::prepare_state() {
  take_what_fits();
  length_ = run_length(config_, data_.train.size());
  agree_on_length(length_, *peers_);
  const Sharing sharing = recovery_ ? share_state(state_, state_is_whole_, *peers_) : Sharing{};
  state_is_survivors_ = sharing.somebody_had_it;
  if (state_is_survivors_) {
    compare_states(state_, *peers_, sharing.holders);
    keep_identity();
    if (!log_->is_open()) log_->open(directory_.layout, config_, length_, state_.step);
    log_->regrouped(state_.step, peers_->world(), sharing.without);
    return;
  }

  const Beginning beginning = choose_resume(options_, generation_, checkpoint_places(), *peers_, warn());
  state_.run = beginning.run;
  Resumed resumed;
  if (beginning.from) {
    resumed = resume_state(state_, state_is_whole_, *beginning.from, config_, length_, *peers_);
  } else {
    keep_history();
  }
  log_->open(directory_.layout, config_, length_, state_.step);
  if (beginning.from) {
    log_->resumed(generation_ > 0 ? RunLog::Again::kRestart : RunLog::Again::kResume, state_.step, peers_->world(),
                  resumed.path);
  }
  if (!resumed.differences.empty() && peers_->rank() == 0) {
    std::fprintf(stderr, "ddptrain: the numbers agree with those of the run so far to rounding, not to the bit: %s\n",
                 resumed.differences.c_str());
  }
  state_is_whole_ = true;
}

// Of a node that was not there when the run began. Whoever begins one keeps it himself (resume.cpp).
void Worker::keep_identity() {
  if (environment_.local_rank != 0) return;
  try {
    keep_run_identity(directory_.layout.run(), state_.run);
  } catch (const std::system_error& error) {
    warn()(std::string(error.what()) + "; training goes on");
  }
}

// Whoever removed the checkpoints of a run may not have meant its figures.
void Worker::keep_history() {
  if (peers_->rank() != 0) return;
  try {
    std::string names;
    for (const auto& path : keep_history_without_checkpoints(directory_.layout)) {
      names += (names.empty() ? "" : ", ") + path.filename().string();
    }
    if (names.empty()) return;
    warn()(
        "this run had checkpoints, but " + directory_.layout.checkpoints().string() +
        " has none that it goes on from: training begins at step 0, and what is recorded of the earlier training is kept as " +
        names);
  } catch (const std::system_error& error) {
    throw UsageError(
        "this run had checkpoints and begins at step 0 without them, but what is recorded of it can't be renamed: " +
        std::string(error.what()) + "; mend that, or use --fresh or another --run-dir");
  }
}

void Worker::prepare_workspace() {
  work_.reset(new Workspace{.config = config_,
                            .length = length_,
                            .device = *device_,
                            .train_set = data_.train,
                            .test_set = data_.test,
                            .normalization = data_.normalization,
                            .faults = faults_,
                            .status = status_,
                            .log = *log_,
                            .gate = gate_,
                            .peers = *peers_,
                            .checkpointing = std::move(checkpointing_),
                            .regrouped = state_is_survivors_});
  work_->loader = std::make_unique<Loader>(data_.train, data_.normalization,
                                           LoaderOptions{.batch_size = config_.batch_size,
                                                         .micro_batch_size = config_.micro_batch_size,
                                                         .prefetch = config_.data.prefetch,
                                                         .seed = config_.seed,
                                                         .augment = config_.data.augment,
                                                         .world = environment_.world_size,
                                                         .rank = environment_.rank,
                                                         .pin_memory = device_->is_cuda()},
                                           state_.step, length_.total_steps);
  for (const NamedTensor& parameter : state_.parameters) work_->clipped.push_back(parameter.tensor);
  const auto state = state_is_survivors_ ? DataParallel::State::kEqual : DataParallel::State::kRank0s;
  work_->parallel =
      std::make_unique<DataParallel>(state_.parameters, state_.buffers, group_, config_.ddp, state_.bucket_order, state);
  const bool writes_copy = environment_.local_rank == 0 && !config_.checkpoint.local_dir.empty();
  if ((peers_->rank() == 0 || writes_copy) && !work_->checkpointing) {
    work_->checkpointing = std::make_unique<Checkpointing>(checkpoint_setting(), faults_, *log_, status_);
    work_->checkpointing->begin();
    if (state_.evaluation) work_->checkpointing->evaluated(state_.evaluation->step, state_.evaluation->result);
  }
  if (config_.data.ledger) open_ledger();
  if (state_.world != peers_->world()) {
    state_.world = peers_->world();
    state_.world_since = state_.step;
  }
  if (agent_) agent_->send(channel::Regrouped{.generation = generation_, .step = state_.step});
}

void Worker::open_ledger() {
  const auto folder = directory_.layout.ledger();
  // Rank 0 before those of other nodes: where all have one folder, there is nothing left for these to cut.
  if (peers_->rank() == 0) cut_ledger(folder, state_.step, ledger_warn());
  peers_->meet();
  if (peers_->rank() != 0 && environment_.local_rank == 0) cut_ledger(folder, state_.step, ledger_warn());
  peers_->meet();  // nobody writes before all have cut
  if (state_is_survivors_) {
    const GroupBefore before{.world = state_.world, .since = state_.world_since, .started_from = state_.started_from};
    const auto gaps = ledger_gaps(folder, before, peers_->rank(), peers_->world());
    fill_ledger_gaps(folder, gaps, before, state_.step, length_, config_.seed, ledger_warn());
    peers_->meet();  // until then all know of the group before: one that is lost now leaves its gaps to the others
  }
  work_->ledger = std::make_unique<Ledger>(folder, environment_.rank, ledger_warn());
}

CheckpointPlaces Worker::checkpoint_places() const {
  CheckpointPlaces places{.run_directory = directory_.layout.checkpoints(),
                          .of_node = environment_.local_rank == 0,
                          .run_file = directory_.layout.run()};
  if (config_.checkpoint.local_dir.empty()) return places;
  places.local_copies = local_copies_of(config_.checkpoint.local_dir, directory_.layout.root, config_digest(config_));
  return places;
}

Checkpointing::Setting Worker::checkpoint_setting() const {
  const CheckpointPlaces places = checkpoint_places();
  Checkpointing::Setting setting{.folder = {}, .config = config_.checkpoint};
  if (places.of_node) setting.local_copies = places.local_copies;
  if (peers_->rank() == 0) {
    setting.folder = places.run_directory;
    setting.generation = {.term = read_run_term(directory_.layout.root), .restart = generation_};
  }
  if (device_->is_cuda()) {
    setting.source = {.on_device = true, .synchronize = [device = device_->index()] { cuda_module()->synchronize(device); }};
  }
  if (config_.checkpoint.every == CheckpointConfig::Every::kAuto) {
    setting.history = read_failure_history(directory_.layout.metrics());
  }
  return setting;
}

int Worker::finish(Outcome outcome) {
  log_->end(state_.step, outcome == Outcome::kDone ? "done" : "preempted");
  status_.enter(channel::Phase::kDone);
  faults_.at(FaultPhase::kExit, state_.step);
  peers_->meet();
  work_.reset();  // loader and Reducer end before the group that they use
  return static_cast<int>(outcome == Outcome::kDone ? ExitCode::kDone : ExitCode::kPreempted);
}

Warn Worker::ledger_warn() {
  return [this](const std::string& message) { log_->warn(channel::ErrorKind::kException, message); };
}

Warn Worker::warn() {
  return [this](const std::string& message) { log_->warn(channel::ErrorKind::kCheckpoint, message); };
}

int Worker::fail(const std::exception_ptr& error) {
  Failure failure = classify(error);
  Shrinking shrinking;
  if (failure.kind == channel::ErrorKind::kOutOfMemory) {
    shrinking = shrink_after(status_.phase(), config_, environment_.world_size);
    failure.message += shrinking.text;
  }
  if (shrinking.how == channel::Shrink::kDone) {
    const std::string key = fit_key(config_, device_->str());
    // What is not kept would run out again, so that restart has its price.
    const bool kept = write_fit(fit_file(), key, smaller_fit(shrinking.fit, read_fit(fit_file(), key)));
    if (!kept) {
      shrinking.how = channel::Shrink::kNothingKnown;
      failure.message += " (but " + fit_file().string() + " cannot be written)";
    }
  }
  if (failure.kind == channel::ErrorKind::kLostPeer) failure.message += " (after step " + std::to_string(status_.step()) + ")";
  const std::string who = environment_.rank < 0 ? "a standby" : "rank " + std::to_string(environment_.rank);
  std::fprintf(stderr, "ddptrain: %s: %s\n", who.c_str(), failure.message.c_str());
  if (agent_) {
    channel::WorkerError report;
    report.kind = failure.kind;
    report.message = failure.message;
    report.device = device_ ? device_->str() : "";
    report.step = status_.step();
    report.phase = status_.phase();
    report.bytes_asked = failure.bytes_asked;
    report.bytes_free = failure.bytes_free;
    report.time_ns = realtime_ns();
    report.exit_code = failure.exit_code;
    report.shrink = shrinking.how;
    report.others_suspect = failure.others_suspect;
    agent_->send(report);
  }
  // A checkpoint that is being written is worth more than the time it takes; whoever wants us gone sooner says so.
  if (work_ && work_->checkpointing) work_->checkpointing->settle();
  if (checkpointing_) checkpointing_->settle();
  return failure.exit_code;
}

}  // namespace

std::string version_text() {
  return "ddptrain " + torch_and_version();
}

int run_worker(const Options& options) {
  block_stop_signals();
  keep_freed_memory();
  auto worker = std::make_unique<Worker>(options);
  try {
    const int exit_code = worker->run();
    const bool end_at_once = worker->left_groups_behind();
    worker.reset();  // in order
    if (end_at_once) leave_now(exit_code);
    return exit_code;
  } catch (...) {
    leave_now(worker->fail(std::current_exception()));
  }
}

}  // namespace ddprun::trainer
