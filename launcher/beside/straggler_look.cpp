// Implementation of straggler_look.hpp.
#include "launcher/beside/straggler_look.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/channel/step_times.hpp"
#include "common/system/realtime.hpp"

namespace ddprun {
namespace {

// The numbers of a RankPace in the messages between nodes, after rank, step and steps.
constexpr std::array kSeconds{&RankPace::own,     &RankPace::waiting, &RankPace::data,  &RankPace::queued,
                              &RankPace::stopped, &RankPace::disk,    &RankPace::asleep};
constexpr std::size_t kMostKept = 1000;
constexpr std::size_t kMostLinks = 16;  // of a rank: only few are in use
constexpr std::chrono::milliseconds kLinksEvery{500};

}  // namespace

void StragglerLook::on(const RunEvent& event) {
  if (const auto* round = std::get_if<RoundStarted>(&event)) {
    begin(*round);
  } else if (const auto* started = std::get_if<WorkerStarted>(&event)) {
    workers_[started->rank] = {.pid = static_cast<pid_t>(started->pid)};
  } else if (const auto* continued = std::get_if<WorkerContinued>(&event)) {
    if (const auto found = workers_.find(continued->rank); found != workers_.end())
      found->second.stopped_s += continued->stopped_s;
  } else if (const auto* ended = std::get_if<WorkerEnded>(&event)) {
    if (suspect_ && suspect_->finding.rank == ended->rank) name_suspect();  // its process can no longer be sampled
  } else if (const auto* spoke = std::get_if<WorkerSpoke>(&event)) {
    if (const auto* pace = std::get_if<channel::Pace>(&spoke->message)) look(spoke->rank, *pace);
  }
}

// After a regroup the survivors continue to run. Their ranks move with the group rank of their node.
void StragglerLook::begin(const RoundStarted& round) {
  const int moved = (round.group_rank - round_.group_rank) * round.workers_here;
  std::map<int, Worker> survivors;
  if (round.regroup) {
    for (const auto& [rank, worker] : workers_) survivors.emplace(rank + moved, Worker{.pid = worker.pid});
  }
  workers_ = std::move(survivors);
  round_ = round;
  not_asked_for_.clear();
  links_.clear();
  suspect_.reset();
  timer_.cancel();
  state_.begin_round(round.world_size, round.nodes > 1);
}

// Spreads the system's counters evenly over all steps of one message. Stops are spread in proportion to the waiting times,
// since a stop during a wait makes that wait longer.
void StragglerLook::look(int rank, const channel::Pace& pace) {
  const auto found = workers_.find(rank);
  const auto total = channel::total_of(pace);
  if (found == workers_.end() || !total) return;
  Worker& worker = found->second;
  const ProcessLoad now = system_.load(worker.pid);
  const auto earlier = std::exchange(worker.load, now);
  if (!earlier) return;  // without an earlier reading, the counters of these steps are unknown
  const ProcessLoad before = *earlier;
  const double stopped_s = std::exchange(worker.stopped_s, 0);
  const double busy_s = now.ran_s - before.ran_s + now.queued_s - before.queued_s + stopped_s;
  const double asleep_s = static_cast<double>(total->own_us) / 1e6 - busy_s;
  for (const channel::StepTime& one : pace.times) {
    const double share = static_cast<double>(one.steps) / static_cast<double>(total->steps);
    const double of_stops =
        total->waiting_us > 0 ? static_cast<double>(one.waiting_us) / static_cast<double>(total->waiting_us) : share;
    RankPace times{.rank = rank,
                   .step = one.step,
                   .steps = one.steps,
                   .own = static_cast<double>(one.own_us) / 1e6,
                   .waiting = static_cast<double>(one.waiting_us) / 1e6,
                   .data = static_cast<double>(one.data_us) / 1e6,
                   .queued = (now.queued_s - before.queued_s) * share,
                   .stopped = stopped_s * of_stops,
                   .disk = (now.disk_s - before.disk_s) * share,
                   .asleep = asleep_s * share};
    if (round_.group_rank == 0) {
      state_.add(times);
    } else if (not_asked_for_.size() < kMostKept) {
      not_asked_for_.push_back(times);
    }
  }
  if (round_.nodes > 1 && Clock::now() - worker.links_seen >= kLinksEvery) {
    worker.links_seen = Clock::now();
    see_links(rank, worker.pid);
  }
  if (round_.group_rank != 0) return;
  judge();
  if (ask_ && round_.nodes > 1) ask_now_and_then();
}

void StragglerLook::judge() {
  for (StragglerState::Finding finding : state_.judge()) {
    if (const auto found = workers_.find(finding.rank); found != workers_.end()) finding.pid = found->second.pid;
    finding.time_ns = realtime_ns();
    if (suspect_) name_suspect();
    if (finding.ended || !finding.sleeps || finding.pid == 0) {
      publish_(finding);
    } else {
      suspect_ = Suspect{.finding = finding};
      look_closer();
    }
  }
}

// By default the kernel does not count the time that a process waits for a disk. So the state of a sleeping rank is sampled,
// forty times.
void StragglerLook::look_closer() {
  constexpr int kLooks = 40;
  constexpr std::chrono::milliseconds kBetween{7};
  if (suspect_->looks == kLooks) return name_suspect();
  ++suspect_->looks;
  if (system_.waits_for_disk(static_cast<pid_t>(suspect_->finding.pid))) ++suspect_->at_disk;
  timer_.expires_after(kBetween);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && suspect_) look_closer();
  });
}

void StragglerLook::name_suspect() {
  Suspect suspect = *std::exchange(suspect_, std::nullopt);
  timer_.cancel();
  StragglerState::Finding& finding = suspect.finding;
  const double disk_s = finding.step_s * suspect.at_disk / std::max(suspect.looks, 1);
  if (disk_s >= StragglerState::kExplains * finding.difference_s) {
    finding.kind = StragglerKind::kDisk;
    finding.part_s = std::min(disk_s, finding.difference_s);
  }
  publish_(finding);
}

void StragglerLook::see_links(int rank, pid_t pid) {
  std::vector<RankLink> links = links_of_process(pid);
  if (links.size() > kMostLinks) links.resize(kMostLinks);
  if (round_.group_rank == 0) {
    state_.set_links(rank, std::move(links));
  } else {
    links_[rank] = std::move(links);
  }
}

// Queries are less frequent if there are many nodes, since every node answers.
void StragglerLook::ask_now_and_then() {
  const auto pause = std::chrono::milliseconds(100 + 10 * round_.nodes);
  if (asking_ || Clock::now() - asked_ < pause) return;
  asking_ = true;
  asked_ = Clock::now();
  ask_();
}

// {"paces":[[rank, step, steps, ...],...],"links":[[rank, from, to, round_trip_s],...]}. If there are too many paces, the
// oldest are left out, since the newest ones matter.
nlohmann::json StragglerLook::told(std::size_t most_bytes) {
  constexpr std::size_t kOfOne = 256;
  nlohmann::json links = nlohmann::json::array();
  for (const auto& [rank, of_rank] : std::exchange(links_, {})) {
    for (const RankLink& link : of_rank) links.push_back({rank, link.from, link.to, link.round_trip_s});
  }
  const std::vector<RankPace> newest = std::exchange(not_asked_for_, {});
  const std::size_t room = most_bytes - std::min(most_bytes, links.size() * kOfOne);
  nlohmann::json paces = nlohmann::json::array();
  for (std::size_t i = newest.size() - std::min(newest.size(), room / kOfOne); i < newest.size(); ++i) {
    nlohmann::json one{newest[i].rank, newest[i].step, newest[i].steps};
    for (const auto number : kSeconds) one.push_back(newest[i].*number);
    paces.push_back(std::move(one));
  }
  return {{"paces", std::move(paces)}, {"links", std::move(links)}};
}

void StragglerLook::hear(const nlohmann::json& answer) {
  if (!answer.is_object()) return;
  const auto is_number = [](const nlohmann::json& number) { return number.is_number(); };
  for (const nlohmann::json& one : answer.value("paces", nlohmann::json::array())) {
    if (!one.is_array() || one.size() != 3 + kSeconds.size() || !std::ranges::all_of(one, is_number)) continue;
    if (!one[0].is_number_integer() || !one[1].is_number_integer() || !one[2].is_number_integer()) continue;
    RankPace pace{.rank = one[0].get<int>(), .step = one[1].get<std::int64_t>(), .steps = one[2].get<std::int64_t>()};
    for (std::size_t i = 0; i < kSeconds.size(); ++i) pace.*kSeconds[i] = one[3 + i].get<double>();
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
