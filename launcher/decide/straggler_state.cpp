// Implementation of straggler_state.hpp.
#include "launcher/decide/straggler_state.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace ddprun {
namespace {

constexpr std::size_t kLookedAt = 20;               // steps, or pieces of several short ones
constexpr std::size_t kFewest = 10;                 // a rank needs that many pieces before it is judged
constexpr std::size_t kKept = 100;                  // a rank may be ahead of the newest report of the slowest rank
constexpr std::int64_t kMostSteps = 1'000'000'000;  // steps of one piece
constexpr double kShareOfStep = 0.2;                // a straggler delays a step by at least this share
constexpr double kLeast = 0.002;                    // and by at least this many seconds
constexpr double kTimesOfQueues = 3;                // and by this multiple of the time that the others wait for processors
constexpr double kTimesSlower = 3;                  // a slow exchange or link takes this multiple of the normal time
constexpr double kShareOfExchange = 0.3;
constexpr std::array kParts{&RankPace::own,     &RankPace::waiting, &RankPace::data,  &RankPace::queued,
                            &RankPace::stopped, &RankPace::disk,    &RankPace::asleep};

double middle_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double valid(double seconds) {
  return std::isfinite(seconds) && seconds > 0 ? seconds : 0;
}

}  // namespace

void StragglerState::begin_round(int world_size, bool exchange) {
  world_size_ = world_size;
  exchange_ = exchange;
  newest_.assign(static_cast<std::size_t>(std::max(world_size, 0)), {});
  judged_ = -1;
  straggler_.reset();
  quickest_exchange_.reset();
  links_.clear();
}

void StragglerState::set_links(int rank, std::vector<RankLink> links) {
  if (rank < 0 || rank >= world_size_) return;
  std::erase_if(links, [](const RankLink& link) { return valid(link.round_trip_s) == 0; });
  links_[rank] = std::move(links);
}

void StragglerState::add(RankPace pace) {
  if (pace.rank < 0 || pace.rank >= world_size_ || pace.steps < 1 || pace.steps > kMostSteps || pace.step < 0) return;
  for (const auto part : kParts) pace.*part = valid(pace.*part);
  // Time for which a waiting rank is stopped counts as its own, since the other ranks then wait for it.
  const double stopped = std::min(pace.waiting, pace.stopped);
  pace.waiting -= stopped;
  pace.own += stopped;
  std::deque<RankPace>& newest = newest_[static_cast<std::size_t>(pace.rank)];
  if (!newest.empty() && pace.step < newest.back().step) {  // an earlier state was loaded
    newest.clear();
    judged_ = -1;
  }
  if (!newest.empty() && pace.step == newest.back().step) {  // reported again: more time for the same step
    for (const auto part : kParts) newest.back().*part += pace.*part;
    return;
  }
  newest.push_back(pace);
  if (newest.size() > kKept) newest.pop_front();
}

std::vector<StragglerState::Sum> StragglerState::sums(std::int64_t from, std::int64_t to) const {
  std::vector<Sum> all;
  for (int rank = 0; rank < world_size_; ++rank) {
    Sum sum{.rank = rank};
    RankPace longest_own, longest_waiting;
    std::int64_t steps = 0;
    for (const RankPace& pace : newest_[static_cast<std::size_t>(rank)]) {
      if (pace.step <= from || pace.step - pace.steps >= to) continue;
      ++sum.pieces;
      steps += pace.steps;
      for (const auto part : kParts) sum.all.*part += pace.*part;
      if (pace.own >= longest_own.own) longest_own = pace;
      if (pace.waiting >= longest_waiting.waiting) longest_waiting = pace;
    }
    if (sum.pieces < kFewest) continue;
    sum.own = (sum.all.own - longest_own.own) / static_cast<double>(steps - longest_own.steps);
    sum.waiting = (sum.all.waiting - longest_waiting.waiting) / static_cast<double>(steps - longest_waiting.steps);
    for (const auto part : kParts) sum.all.*part /= static_cast<double>(steps);
    all.push_back(sum);
  }
  return all;
}

std::vector<StragglerState::Finding> StragglerState::judge() {
  if (world_size_ < 2) return {};
  // The newest step that every rank has reported, and the newest 20 pieces of the rank whose newest step is the smallest.
  const std::deque<RankPace>* last = nullptr;
  for (const std::deque<RankPace>& newest : newest_) {
    if (newest.size() < kFewest) return {};
    if (last == nullptr || newest.back().step < last->back().step) last = &newest;
  }
  const std::int64_t to = last->back().step;
  if (to == judged_) return {};
  judged_ = to;
  const RankPace& first = (*last)[last->size() - std::min(last->size(), kLookedAt)];
  const std::int64_t from = first.step - first.steps;
  const std::vector<Sum> all = sums(from, to);
  if (static_cast<int>(all.size()) < world_size_) return {};
  Finding finding;
  finding.from_step = from + 1;
  finding.step = to;
  const bool of_exchange = straggler_ && straggler_->kind == StragglerKind::kNetwork;
  if (!of_exchange) judge_ranks(all, finding);
  if (exchange_ && (!straggler_ || of_exchange)) judge_exchange(all, finding);
  return std::exchange(findings_, {});
}

void StragglerState::judge_ranks(const std::vector<Sum>& ranks, Finding finding) {
  const Sum& slowest =
      straggler_ ? ranks[static_cast<std::size_t>(straggler_->rank)] : *std::ranges::max_element(ranks, {}, &Sum::own);
  const auto of_others = [&](const auto& value) {
    std::vector<double> values;
    for (const Sum& sum : ranks)
      if (sum.rank != slowest.rank) values.push_back(value(sum));
    return middle_of(std::move(values));
  };
  double step_s = 0;
  for (const Sum& sum : ranks) step_s += (sum.all.own + sum.all.waiting) / static_cast<double>(ranks.size());
  const double margin = std::max(kLeast, kShareOfStep * step_s);
  const double longer = slowest.own - of_others([](const Sum& sum) { return sum.own; });

  finding.rank = slowest.rank;
  finding.own_s = slowest.all.own;
  finding.others_s = of_others([](const Sum& sum) { return sum.all.own; });
  if (straggler_) {
    if (longer >= margin / 2) return;
    finding.kind = straggler_->kind;
    finding.ended = true;
    straggler_.reset();
    findings_.push_back(finding);
    return;
  }
  const double others_wait = of_others([](const Sum& sum) { return sum.waiting; }) - slowest.waiting;
  if (longer < margin || others_wait < longer / 2) return;

  const double difference = std::max(longer, finding.own_s - finding.others_s);
  const auto more = [&](auto part) { return slowest.all.*part - of_others([part](const Sum& sum) { return sum.all.*part; }); };
  // If all ranks lack processors, the rank that gets least of them changes every second and is no straggler. A rank that was
  // stopped by SIGSTOP is one.
  const double others_queued = of_others([](const Sum& sum) { return sum.all.queued; });
  const bool was_stopped = more(&RankPace::stopped) >= kExplains * difference;
  if (!was_stopped && longer < kTimesOfQueues * others_queued) return;
  const auto explains = [&](StragglerKind kind, double part) {
    if (part < kExplains * difference) return false;
    finding.kind = kind;
    finding.part_s = std::min(part, difference);
    return true;
  };
  // The order matters: a rank that lacks a processor or a disk also gets its batch late.
  const bool explained = explains(StragglerKind::kProcessor, more(&RankPace::queued) + more(&RankPace::stopped)) ||
                         explains(StragglerKind::kDisk, more(&RankPace::disk)) ||
                         explains(StragglerKind::kData, more(&RankPace::data));
  if (!explained) finding.kind = StragglerKind::kCompute;
  finding.step_s = step_s;
  finding.difference_s = difference;
  finding.sleeps = more(&RankPace::asleep) >= kExplains * difference;
  straggler_ = finding;
  findings_.push_back(finding);
}

// While even the last rank waits, no rank computes. So the shortest waiting time is that of the exchange itself.
void StragglerState::judge_exchange(const std::vector<Sum>& ranks, Finding finding) {
  if (std::ranges::min(ranks, {}, &Sum::pieces).pieces < kLookedAt) return;
  const double exchange_s = std::ranges::min(ranks, {}, &Sum::waiting).waiting;
  const double step_s = ranks.front().all.own + ranks.front().all.waiting;
  const double before = quickest_exchange_.value_or(exchange_s);
  quickest_exchange_ = std::min(before, exchange_s);
  const double margin = std::max(kLeast, kShareOfExchange * step_s);
  finding.kind = StragglerKind::kNetwork;
  finding.own_s = exchange_s;
  finding.others_s = before;
  finding.part_s = exchange_s - before;
  if (straggler_ && finding.part_s < margin / 2) {
    finding.rank = straggler_->rank;
    finding.ended = true;
    straggler_.reset();
    findings_.push_back(finding);
  } else if (!straggler_ && finding.part_s >= margin && exchange_s >= kTimesSlower * before) {
    blame_a_link(finding);
    straggler_ = finding;
    findings_.push_back(finding);
  }
}

// A node with a slow link has no quick connection to any other node. Each other node has a quick connection to a third node. So
// with two nodes the slow one cannot be found.
void StragglerState::blame_a_link(Finding& finding) const {
  std::map<std::string, double> quickest;  // by address
  for (const auto& [rank, links] : links_) {
    for (const RankLink& link : links) {
      for (const std::string& address : {link.from, link.to}) {
        const auto [entry, first] = quickest.emplace(address, link.round_trip_s);
        if (!first) entry->second = std::min(entry->second, link.round_trip_s);
      }
    }
  }
  if (quickest.size() < 3) return;
  const auto slowest = std::ranges::max_element(quickest, {}, [](const auto& entry) { return entry.second; });
  double others = 0;
  for (const auto& [address, round_trip_s] : quickest) {
    if (address != slowest->first) others = std::max(others, round_trip_s);
  }
  if (slowest->second < kTimesSlower * others) return;
  for (const auto& [rank, links] : links_) {
    if (std::ranges::none_of(links, [&](const RankLink& link) { return link.from == slowest->first; })) continue;
    finding.rank = rank;
    finding.round_trip_s = slowest->second;
    finding.others_round_trip_s = others;
    return;
  }
}

}  // namespace ddprun
