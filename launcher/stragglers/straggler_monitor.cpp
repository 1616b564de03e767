#include "launcher/stragglers/straggler_monitor.hpp"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/channel/step_times.hpp"
#include "common/system/realtime.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kMaxUnsent = 1000;
constexpr std::size_t kMaxLinks = 16;  // maximum number of links per rank; a rank uses only a few
constexpr std::chrono::milliseconds kLinksInterval{500};

}  // namespace

void StragglerMonitor::on(const RunEvent& event) {
  if (const auto* round = std::get_if<RoundStarted>(&event)) {
    begin(*round);
  } else if (const auto* started = std::get_if<WorkerStarted>(&event)) {
    readings_[started->rank] = {};
  } else if (const auto* continued = std::get_if<WorkerContinued>(&event)) {
    if (round_.find(continued->rank) != nullptr) readings_[continued->rank].stopped_s += continued->stopped_s;
  } else if (const auto* ended = std::get_if<WorkerEnded>(&event)) {
    // If the process of the suspect has ended, it cannot be sampled.
    if (suspect_ && suspect_->finding.rank == ended->rank) report_suspect();
  } else if (const auto* reported = std::get_if<WorkerReported>(&event)) {
    if (const auto* pace = std::get_if<channel::Pace>(&reported->message)) on_pace(reported->rank, *pace);
  }
}

// Discards the reports of the earlier round. After a regroup the surviving processes are kept, under their new ranks.
void StragglerMonitor::begin(const RoundStarted& round) {
  readings_.clear();
  unsent_reports_.clear();
  links_.clear();
  suspect_.reset();
  timer_.cancel();
  state_.begin_round(round.world_size, round.nodes > 1);
}

// One message may report several steps. The increases of the kernel counters are divided evenly among these steps. The time for
// which the worker was stopped (SIGSTOP) is divided in proportion to the waiting times: a stop during a wait prolongs that
// wait.
void StragglerMonitor::on_pace(int rank, const channel::Pace& pace) {
  const RoundModel::Worker* const worker = round_.find(rank);
  const auto total = channel::total_of(pace);
  if (worker == nullptr || !total) return;
  const auto pid = static_cast<pid_t>(worker->pid);
  Readings& readings = readings_[rank];
  const ProcessLoad now = system_.load(pid);
  const auto earlier = std::exchange(readings.load, now);
  if (!earlier) return;  // if there is no earlier reading, the counters of these steps are unknown
  const ProcessLoad before = *earlier;
  const double stopped_s = std::exchange(readings.stopped_s, 0);
  const double busy_s = now.ran_s - before.ran_s + now.queued_s - before.queued_s + stopped_s;
  const double asleep_s = static_cast<double>(total->own_us) / 1e6 - busy_s;
  for (const channel::StepTime& one : pace.times) {
    const double share = static_cast<double>(one.steps) / static_cast<double>(total->steps);
    const double stopped_fraction =
        total->waiting_us > 0 ? static_cast<double>(one.waiting_us) / static_cast<double>(total->waiting_us) : share;
    RankPace times{.rank = rank,
                   .step = one.step,
                   .steps = one.steps,
                   .own = static_cast<double>(one.own_us) / 1e6,
                   .waiting = static_cast<double>(one.waiting_us) / 1e6,
                   .data = static_cast<double>(one.data_us) / 1e6,
                   .queued = (now.queued_s - before.queued_s) * share,
                   .stopped = stopped_s * stopped_fraction,
                   .disk = (now.disk_s - before.disk_s) * share,
                   .asleep = asleep_s * share};
    if (round_.round().group_rank == 0) {
      state_.add(times);
    } else if (unsent_reports_.size() < kMaxUnsent) {
      unsent_reports_.push_back(times);
    }
  }
  if (round_.round().nodes > 1 && Clock::now() - readings.links_read >= kLinksInterval) {
    readings.links_read = Clock::now();
    read_links(rank, pid);
  }
  if (round_.round().group_rank != 0) return;
  judge();
  if (query_ && round_.round().nodes > 1) query_periodically();
}

// Publishes new findings. A straggler that sleeps is sampled before its finding is published, because it may wait for a disk.
void StragglerMonitor::judge() {
  for (StragglerState::Finding finding : state_.judge()) {
    if (const auto* worker = round_.find(finding.rank)) finding.pid = worker->pid;
    finding.time_ns = realtime_ns();
    if (suspect_) report_suspect();
    if (finding.ended || !finding.sleeps || finding.pid == 0) {
      publish_(finding);
    } else {
      suspect_ = Suspect{.finding = finding};
      sample_suspect();
    }
  }
}

// By default the kernel does not count the time for which a process waits for a disk. So we sample the state of a sleeping
// straggler 40 times, at intervals of 7 ms. The fraction of samples in which it waits for a disk gives an estimate of that
// time.
void StragglerMonitor::sample_suspect() {
  constexpr int kSamples = 40;
  constexpr std::chrono::milliseconds kMinInterval{7};
  if (suspect_->samples == kSamples) return report_suspect();
  ++suspect_->samples;
  if (system_.waits_for_disk(static_cast<pid_t>(suspect_->finding.pid))) ++suspect_->at_disk;
  timer_.expires_after(kMinInterval);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && suspect_) sample_suspect();
  });
}

void StragglerMonitor::report_suspect() {
  Suspect suspect = *std::exchange(suspect_, std::nullopt);
  timer_.cancel();
  StragglerState::Finding& finding = suspect.finding;
  const double disk_s = finding.step_s * suspect.at_disk / std::max(suspect.samples, 1);
  if (disk_s >= StragglerState::kExplains * finding.difference_s) {
    finding.kind = StragglerKind::kDisk;
    finding.part_s = std::min(disk_s, finding.difference_s);
  }
  publish_(finding);
}

void StragglerMonitor::read_links(int rank, pid_t pid) {
  std::vector<RankLink> links = links_of_process(pid);
  if (links.size() > kMaxLinks) links.resize(kMaxLinks);
  if (round_.round().group_rank == 0) {
    state_.set_links(rank, std::move(links));
  } else {
    links_[rank] = std::move(links);
  }
}

// Queries the other nodes again after a pause. Every node answers each query, so the pause grows with the number of nodes.
void StragglerMonitor::query_periodically() {
  const auto pause = std::chrono::milliseconds(100 + 10 * round_.round().nodes);
  if (query_pending_ || Clock::now() - last_query_ < pause) return;
  query_pending_ = true;
  last_query_ = Clock::now();
  query_();
}

// Returns {"paces":[[rank, step, steps, ...],...],"links":[[rank, from, to, round_trip_s],...]}. If the reports exceed
// `max_bytes`, the oldest step times are left out: StragglerState judges only the newest steps.
nlohmann::json StragglerMonitor::take_reports(std::size_t max_bytes) {
  constexpr std::size_t kBytesPerReport = 256;
  nlohmann::json links = nlohmann::json::array();
  for (const auto& [rank, of_rank] : std::exchange(links_, {})) {
    for (const RankLink& link : of_rank) links.push_back({rank, link.from, link.to, link.round_trip_s});
  }
  const std::vector<RankPace> newest = std::exchange(unsent_reports_, {});
  const std::size_t space = max_bytes - std::min(max_bytes, links.size() * kBytesPerReport);
  nlohmann::json paces = nlohmann::json::array();
  for (std::size_t i = newest.size() - std::min(newest.size(), space / kBytesPerReport); i < newest.size(); ++i) {
    nlohmann::json one{newest[i].rank, newest[i].step, newest[i].steps};
    for (const auto number : kTimesOfPace) one.push_back(newest[i].*number);
    paces.push_back(std::move(one));
  }
  return {{"paces", std::move(paces)}, {"links", std::move(links)}};
}

// Adds the reports in another node's answer. The answer comes from the network, so each value is checked. Invalid entries are
// skipped.
void StragglerMonitor::receive(const nlohmann::json& answer) {
  if (!answer.is_object()) return;
  const auto is_number = [](const nlohmann::json& number) { return number.is_number(); };
  for (const nlohmann::json& one : answer.value("paces", nlohmann::json::array())) {
    if (!one.is_array() || one.size() != 3 + kTimesOfPace.size() || !std::ranges::all_of(one, is_number)) continue;
    if (!one[0].is_number_integer() || !one[1].is_number_integer() || !one[2].is_number_integer()) continue;
    RankPace pace{.rank = one[0].get<int>(), .step = one[1].get<std::int64_t>(), .steps = one[2].get<std::int64_t>()};
    for (std::size_t i = 0; i < kTimesOfPace.size(); ++i) pace.*kTimesOfPace[i] = one[3 + i].get<double>();
    state_.add(pace);
  }
  std::map<int, std::vector<RankLink>> links;
  for (const nlohmann::json& one : answer.value("links", nlohmann::json::array())) {
    if (!one.is_array() || one.size() != 4 || !one[0].is_number_integer() || !one[1].is_string() || !one[2].is_string() ||
        !one[3].is_number())
      continue;
    links[one[0].get<int>()].push_back(
        {.from = one[1].get<std::string>(), .to = one[2].get<std::string>(), .round_trip_s = one[3].get<double>()});
  }
  for (auto& [rank, of_rank] : links) state_.set_links(rank, std::move(of_rank));
  judge();
}

}  // namespace ddprun
