#include "launcher/stragglers/straggler_state.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace ddprun {
namespace {

constexpr std::size_t kWindow = 20;  // number of pieces per rank that are compared; a piece is one step or several short steps
constexpr std::size_t kMinPieces = 10;   // minimum number of pieces of each rank before any rank is judged
constexpr std::size_t kMaxPieces = 100;  // number of pieces per rank that are stored; a rank may report earlier than the others
constexpr std::int64_t kMaxSteps = 1'000'000'000;  // maximum number of steps in one piece
constexpr double kStepFraction = 0.2;              // a straggler delays each step by at least this fraction of the step time
constexpr double kMinDifference = 0.002;           // a straggler delays each step by at least this many seconds
// a straggler is slower by at least this multiple of the time for which the other ranks wait for processors
constexpr double kQueueFactor = 3;
constexpr double kSlowdownFactor = 3;  // an exchange or link is slow if it takes this multiple of its normal time
constexpr double kExchangeFraction = 0.3;

double median_of(std::vector<double> values) {
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
  fastest_exchange_.reset();
  links_.clear();
}

void StragglerState::set_links(int rank, std::vector<RankLink> links) {
  if (rank < 0 || rank >= world_size_) return;
  std::erase_if(links, [](const RankLink& link) { return valid(link.round_trip_s) == 0; });
  links_[rank] = std::move(links);
}

void StragglerState::add(RankPace pace) {
  if (pace.rank < 0 || pace.rank >= world_size_ || pace.steps < 1 || pace.steps > kMaxSteps || pace.step < 0) return;
  for (const auto part : kTimesOfPace) pace.*part = valid(pace.*part);
  // While a rank is stopped (SIGSTOP), the other ranks wait for it. So its stopped time counts as its own time, even if it was
  // stopped while it was itself waiting.
  const double stopped = std::min(pace.waiting, pace.stopped);
  pace.waiting -= stopped;
  pace.own += stopped;
  std::deque<RankPace>& newest = newest_[static_cast<std::size_t>(pace.rank)];
  // If the step number decreases, the job has loaded an earlier state, and the stored step times are obsolete.
  if (!newest.empty() && pace.step < newest.back().step) {
    newest.clear();
    judged_ = -1;
  }
  if (!newest.empty() && pace.step == newest.back().step) {  // the step was reported again, so its additional time is added
    for (const auto part : kTimesOfPace) newest.back().*part += pace.*part;
    return;
  }
  newest.push_back(pace);
  if (newest.size() > kMaxPieces) newest.pop_front();
}

// Returns the means of each rank over the steps `from` + 1 to `to`. A rank with too few pieces in this range is left out.
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
      for (const auto part : kTimesOfPace) sum.all.*part += pace.*part;
      if (pace.own >= longest_own.own) longest_own = pace;
      if (pace.waiting >= longest_waiting.waiting) longest_waiting = pace;
    }
    if (sum.pieces < kMinPieces) continue;
    sum.own = (sum.all.own - longest_own.own) / static_cast<double>(steps - longest_own.steps);
    sum.waiting = (sum.all.waiting - longest_waiting.waiting) / static_cast<double>(steps - longest_waiting.steps);
    for (const auto part : kTimesOfPace) sum.all.*part /= static_cast<double>(steps);
    all.push_back(sum);
  }
  return all;
}

std::vector<StragglerState::Finding> StragglerState::judge() {
  if (world_size_ < 2) return {};
  // Compares the steps that all ranks have reported. `last` is the rank whose reports are furthest behind. Only the steps of
  // this rank's newest 20 pieces are compared.
  const std::deque<RankPace>* last = nullptr;
  for (const std::deque<RankPace>& newest : newest_) {
    if (newest.size() < kMinPieces) return {};
    if (last == nullptr || newest.back().step < last->back().step) last = &newest;
  }
  const std::int64_t to = last->back().step;
  if (to == judged_) return {};
  judged_ = to;
  const RankPace& first = (*last)[last->size() - std::min(last->size(), kWindow)];
  const std::int64_t from = first.step - first.steps;
  const std::vector<Sum> all = sums(from, to);
  if (static_cast<int>(all.size()) < world_size_) return {};
  Finding finding;
  finding.from_step = from + 1;
  finding.step = to;
  const bool is_exchange = straggler_ && straggler_->kind == StragglerKind::kNetwork;
  if (!is_exchange) judge_ranks(all, finding);
  if (exchange_ && (!straggler_ || is_exchange)) judge_exchange(all, finding);
  return std::exchange(findings_, {});
}

// If there is no straggler, checks the rank with the longest own time. Otherwise checks whether the known straggler has
// recovered.
void StragglerState::judge_ranks(const std::vector<Sum>& ranks, Finding finding) {
  const Sum& slowest =
      straggler_ ? ranks[static_cast<std::size_t>(straggler_->rank)] : *std::ranges::max_element(ranks, {}, &Sum::own);
  const auto of_others = [&](const auto& value) {
    std::vector<double> values;
    for (const Sum& sum : ranks)
      if (sum.rank != slowest.rank) values.push_back(value(sum));
    return median_of(std::move(values));
  };
  double step_s = 0;
  for (const Sum& sum : ranks) step_s += (sum.all.own + sum.all.waiting) / static_cast<double>(ranks.size());
  const double margin = std::max(kMinDifference, kStepFraction * step_s);
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
  // If the processors are overloaded, all ranks wait for them, and the slowest rank changes from second to second. Such a rank
  // is not a straggler. But a rank that was stopped by SIGSTOP always is a straggler.
  const double others_queued = of_others([](const Sum& sum) { return sum.all.queued; });
  const bool was_stopped = more(&RankPace::stopped) >= kExplains * difference;
  if (!was_stopped && longer < kQueueFactor * others_queued) return;
  const auto explains = [&](StragglerKind kind, double part) {
    if (part < kExplains * difference) return false;
    finding.kind = kind;
    finding.part_s = std::min(part, difference);
    return true;
  };
  // The order of these checks matters: a rank that has no processor, or waits for a disk, also gets its batch late.
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

// The rank that finishes its own work last does not wait for another rank's work. Its waiting time is only the duration of the
// exchange. So the shortest waiting time of all ranks measures the exchange.
void StragglerState::judge_exchange(const std::vector<Sum>& ranks, Finding finding) {
  if (std::ranges::min(ranks, {}, &Sum::pieces).pieces < kWindow) return;
  const double exchange_s = std::ranges::min(ranks, {}, &Sum::waiting).waiting;
  const double step_s = ranks.front().all.own + ranks.front().all.waiting;
  const double before = fastest_exchange_.value_or(exchange_s);
  fastest_exchange_ = std::min(before, exchange_s);
  const double margin = std::max(kMinDifference, kExchangeFraction * step_s);
  finding.kind = StragglerKind::kNetwork;
  finding.own_s = exchange_s;
  finding.others_s = before;
  finding.part_s = exchange_s - before;
  if (straggler_ && finding.part_s < margin / 2) {
    finding.rank = straggler_->rank;
    finding.ended = true;
    straggler_.reset();
    findings_.push_back(finding);
  } else if (!straggler_ && finding.part_s >= margin && exchange_s >= kSlowdownFactor * before) {
    find_slow_link(finding);
    straggler_ = finding;
    findings_.push_back(finding);
  }
}

// Finds the node with a slow link. All connections of that node are slow, including its fastest one. Every other node has a
// fast connection to a third node. So we compare the fastest connection of each address. A job with two nodes has no third
// node, so the slow node cannot be found.
void StragglerState::find_slow_link(Finding& finding) const {
  std::map<std::string, double> fastest;  // key: address
  for (const auto& [rank, links] : links_) {
    for (const RankLink& link : links) {
      for (const std::string& address : {link.from, link.to}) {
        const auto [entry, first] = fastest.emplace(address, link.round_trip_s);
        if (!first) entry->second = std::min(entry->second, link.round_trip_s);
      }
    }
  }
  if (fastest.size() < 3) return;
  const auto slowest = std::ranges::max_element(fastest, {}, [](const auto& entry) { return entry.second; });
  double others = 0;
  for (const auto& [address, round_trip_s] : fastest) {
    if (address != slowest->first) others = std::max(others, round_trip_s);
  }
  if (slowest->second < kSlowdownFactor * others) return;
  for (const auto& [rank, links] : links_) {
    if (std::ranges::none_of(links, [&](const RankLink& link) { return link.from == slowest->first; })) continue;
    finding.rank = rank;
    finding.round_trip_s = slowest->second;
    finding.others_round_trip_s = others;
    return;
  }
}

}  // namespace ddprun
