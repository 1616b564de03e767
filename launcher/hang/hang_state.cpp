// Implementation of hang_state.hpp, in the order of an investigation: the deadline passes, the workers are queried, a verdict
// is found, stacks are read, the findings are reported.
#include "launcher/hang/hang_state.hpp"

#include <algorithm>
#include <utility>

#include "common/base/check.hpp"
#include "common/base/overloaded.hpp"
#include "launcher/events/progress.hpp"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kCheckInterval{1000};
// If a timer fires later than expected by more than this, the agent itself was suspended.
constexpr milliseconds kLateTolerance{1000};
constexpr milliseconds kStackTimeout{10000};
constexpr milliseconds kAllStacksTimeout{15000};
constexpr std::size_t kMaxStacks = 4;
constexpr double kMaxSaveSeconds = 1e7;  // longer times are ignored, since a script may report any number as the time of a save

std::string time_text(milliseconds time) {
  return format_duration(static_cast<double>(time.count()) / 1000);
}

bool is_stopped(char process_state) {
  return process_state == 'T' || process_state == 't';
}

}  // namespace

// ---- watching ----

HangState::Actions HangState::begin_round(const Round& round, Time now) {
  actions_ = end_round();
  round_ = round;
  // If the workers run a script, only the node of rank 0 watches for a hang. Its result applies to the whole job. On other
  // nodes the script may print nothing, so their agents cannot detect progress.
  if (!settings_.limits.watch || (!settings_.channel && round.rank_offset > 0)) return done();
  const auto others = round.rank_offset > 0 ? HangWatch::Others::kUnobserved : HangWatch::Others::kNone;
  watch_.begin_round(round.workers, settings_.channel ? Activity::kStart : Activity::kStep, others, now);
  phase_ = Phase::kWatching;
  wait_for_deadline();
  return done();
}

HangState::Actions HangState::end_round() {
  give_up_inquiry();
  phase_ = Phase::kOff;
  reported_steps_.clear();
  watch_.begin_round(0, Activity::kStep, HangWatch::Others::kNone, {});
  actions_ = {hang_action::StopReading{}, hang_action::CancelTimer{}};
  return done();
}

HangState::Actions HangState::on_message(int rank, const channel::FromWorker& message, Time now) {
  if (!settings_.limits.watch) return {};
  std::visit(Overloaded{[&](const channel::Position& position) {
                          for (Suspect& suspect : suspects_)
                            if (suspect.rank == rank) suspect.observation.position = position;
                          on_script_step(rank, position.step, now);
                          if (phase_ == Phase::kQuerying) check_answers(now);
                        },
                        [&](const channel::PhaseChange& change) {
                          watch_.entered(rank, activity_of(change.phase), now);
                          tighten_deadline(now);
                        },
                        [&](const channel::CheckpointPublished& published) {
                          const double seconds = published.save_s;
                          if (!(seconds >= 0 && seconds < kMaxSaveSeconds)) return;  // a script may report any number
                          watch_.on_checkpoint_written(
                              std::chrono::duration_cast<milliseconds>(std::chrono::duration<double>(seconds)));
                        },
                        [&](const channel::Progress& progress) {
                          on_script_step(rank, progress.step, now);
                          watch_.stepped(rank, now);
                          if (now - last_check_ >= kCheckInterval) tighten_deadline(now);
                        },
                        Ignored<channel::Hello, channel::EvalResult, channel::Pace, channel::WorkerError,
                                channel::SignalReceived, channel::StopReady, channel::SavesOnStop, channel::Regroupable,
                                channel::RegroupReady, channel::GroupFormed, channel::StandbyReady, channel::StoreRequest>{}},
             message);
  return done();
}

// A script reports only some of its steps. So its answer to a position query may show progress that was not reported before.
void HangState::on_script_step(int rank, std::int64_t step, Time now) {
  if (settings_.channel) return;
  const auto [report, first] = reported_steps_.emplace(rank, step);
  if (!first && step > report->second) watch_.stepped(rank, now);
  report->second = step;
}

void HangState::printed(int rank, Time now) {
  if (settings_.limits.watch && !can_query(rank)) watch_.stepped(rank, now);
}

HangState::Actions HangState::gone(int rank, Time now) {
  watch_.gone(rank);
  reported_steps_.erase(rank);
  tighten_deadline(now);
  return done();
}

// Sets an earlier deadline if the limit has become shorter. A new phase may have a shorter limit, and the limit learned from
// the run may have decreased.
void HangState::tighten_deadline(Time now) {
  last_check_ = now;
  const auto deadline = watch_.deadline();
  if (phase_ == Phase::kWatching && deadline && *deadline < timer_at_) wait_for_deadline();
}

// To save work, the timer is not set again at each message. If it fires after progress was made, it is set to the new deadline.
void HangState::wait_for_deadline() {
  phase_ = Phase::kWatching;
  if (const auto deadline = watch_.deadline()) set_timer(*deadline);
}

void HangState::set_timer(Time at) {
  timer_at_ = at;
  actions_.emplace_back(hang_action::SetTimer{at});
}

HangState::Actions HangState::timer_fired(const HangView& view, Time now) {
  switch (phase_) {
    case Phase::kWatching:
      deadline_passed(view, now);
      return done();
    case Phase::kQuerying:  // the time for answers has run out
    case Phase::kJudging:
      judge(view, now);
      return done();
    case Phase::kWaiting:
      if (moved_since(now)) {
        give_up_inquiry();
        wait_for_deadline();
      } else {
        inquire(view, now);
      }
      return done();
    case Phase::kOff:
    case Phase::kReading:
    case Phase::kReported:
      return {};  // the timer fired while it was being cancelled
  }
  check_failed("unknown phase of the hang watch");
}

void HangState::deadline_passed(const HangView& view, Time now) {
  if (now - timer_at_ > kLateTolerance) watch_.forgive(now);
  if (view.bytes_in_files != bytes_in_files_ && reported_steps_.empty()) watch_.forgive(now);
  if (view.bytes_in_files) bytes_in_files_ = *view.bytes_in_files;
  if (!moved_since(now) && view.matters) return inquire(view, now);
  if (!moved_since(now)) watch_.forgive(now);
  wait_for_deadline();
}

bool HangState::moved_since(Time now) const {
  const auto deadline = watch_.deadline();
  return !deadline || *deadline > now;
}

// ---- querying ----

void HangState::inquire(const HangView& view, Time now) {
  suspects_.clear();
  // The verdict compares the positions of all workers, so all of them are queried. If one of them cannot be queried, none of
  // them is queried.
  bool all_can = true;
  for (int rank = 0; rank < static_cast<int>(view.workers.size()); ++rank)
    all_can = all_can && (of_rank(view.workers, rank).pid <= 0 || can_query(rank));
  for (int rank = 0; rank < static_cast<int>(view.workers.size()); ++rank) {
    const HangView::Process& process = of_rank(view.workers, rank);
    if (process.pid <= 0) continue;
    suspects_.push_back(
        {.rank = rank,
         .pid = process.pid,
         .observation = {.rank = round_.rank_offset + rank, .process_state = process.state, .queried = all_can}});
  }
  if (suspects_.empty()) {  // no worker has started yet
    watch_.forgive(now);
    return wait_for_deadline();
  }
  phase_ = Phase::kQuerying;
  if (all_can)
    for (const Suspect& suspect : suspects_) actions_.emplace_back(hang_action::QueryPosition{suspect.rank});
  set_timer(now + settings_.answer_time);
  check_answers(now);
}

void HangState::check_answers(Time now) {
  const bool awaited = std::any_of(suspects_.begin(), suspects_.end(), [](const Suspect& s) {
    return s.observation.queried && !s.observation.position && !is_stopped(s.observation.process_state);
  });
  if (awaited) return;
  phase_ = Phase::kJudging;
  // The verdict is made when a timer fires, and not here. The timer fires immediately, but after other messages that arrived
  // together with the answer. These messages may report progress.
  set_timer(now);
}

// ---- judging ----

void HangState::judge(const HangView& view, Time now) {
  if (moved_since(now)) {
    give_up_inquiry();
    return wait_for_deadline();
  }
  std::vector<HangObservation> observations;
  for (Suspect& suspect : suspects_) {
    const auto place = static_cast<std::size_t>(suspect.rank);
    const bool is_there = place < view.workers.size() && view.workers[place].pid == suspect.pid;
    suspect.observation.process_state = is_there ? view.workers[place].state : '\0';
    observations.push_back(suspect.observation);
  }
  verdict_ = judge_hang(observations);
  // If all ranks of this node wait, the culprit may be on another node. That node's agent finds the culprit after its own time
  // limit, and after it has read the stacks on that node. So this agent waits that long before it decides.
  if (verdict_.certainty == HangVerdict::Certainty::kGuess && round_.many_nodes && !second_check_) {
    second_check_ = true;
    phase_ = Phase::kWaiting;
    const int waits = first_of(verdict_.culprits, "a hang is diagnosed without a rank that caused it") - round_.rank_offset;
    const auto silent = watch_.silence_of(waits, now).lasted;
    return set_timer(now + std::max(watch_.max_remote_limit() - silent, milliseconds{}) + settings_.answer_time +
                     kAllStacksTimeout);
  }
  message_ = message_of(verdict_, now);
  // The stacks of the ranks to blame are read first, because each process is stopped for a moment while its stack is read.
  phase_ = Phase::kReading;
  stacks_to_read_.clear();
  for (std::size_t i = 0; i < suspects_.size(); ++i) stacks_to_read_.push_back(i);
  std::stable_partition(stacks_to_read_.begin(), stacks_to_read_.end(),
                        [this](std::size_t i) { return is_culprit(suspects_[i]); });
  stacks_to_read_.resize(std::min(stacks_to_read_.size(), kMaxStacks));
  std::reverse(stacks_to_read_.begin(), stacks_to_read_.end());
  stacks_until_ = now + kAllStacksTimeout;
  read_next_stack(now);
}

bool HangState::is_culprit(const Suspect& suspect) const {
  return std::find(verdict_.culprits.begin(), verdict_.culprits.end(), suspect.observation.rank) != verdict_.culprits.end();
}

std::string HangState::message_of(const HangVerdict& verdict, Time now) const {
  const int rank = first_of(verdict.culprits, "a hang is diagnosed without a rank that caused it") - round_.rank_offset;
  const HangWatch::Silence silence = watch_.silence_of(rank, now);
  const char* what = can_query(rank) ? "no progress for " : "no output of any worker for ";
  return "hangs: " + std::string(what) + time_text(silence.lasted) + " (limit " + time_text(silence.limit) +
         (silence.learned ? ", learned from this run" : ", --hang-timeout") + "); it " + verdict.why +
         (silence.activity == Activity::kSave ? "; --hang-timeout save=SECONDS sets a longer limit" : "");
}

// ---- reading stacks, and the end of an inquiry ----

void HangState::read_next_stack(Time now) {
  const auto left = std::chrono::duration_cast<milliseconds>(stacks_until_ - now);
  if (stacks_to_read_.empty() || left.count() <= 0) return report_findings();
  const long pid = suspects_[stacks_to_read_.back()].pid;
  actions_.emplace_back(hang_action::ReadStack{pid, std::min(left, kStackTimeout)});
}

HangState::Actions HangState::stack_read(std::vector<std::string> frames, Time now) {
  if (phase_ != Phase::kReading) return {};
  check(!stacks_to_read_.empty(), "a call stack arrived that was not requested");
  suspects_[stacks_to_read_.back()].stack = std::move(frames);
  stacks_to_read_.pop_back();
  read_next_stack(now);
  return done();
}

HangState::Actions HangState::cannot_read_stacks() {
  if (phase_ != Phase::kReading) return {};
  report_findings();
  return done();
}

void HangState::report_findings() {
  hang_action::ReportHang report;
  for (Suspect& suspect : suspects_) {
    hang_action::ReportHang::Finding finding{.rank = suspect.rank, .pid = suspect.pid};
    if (is_culprit(suspect)) finding.blame = message_;
    finding.where = "rank " + std::to_string(suspect.observation.rank) + ": ";
    if (suspect.observation.position) finding.where += "in " + describe(*suspect.observation.position) + "; ";
    if (suspect.observation.queried && !suspect.observation.position) finding.where += "no answer; ";
    finding.stack = std::move(suspect.stack);
    report.findings.push_back(std::move(finding));
  }
  give_up_inquiry();
  phase_ = Phase::kReported;
  actions_.emplace_back(std::move(report));
}

void HangState::give_up_inquiry() {
  second_check_ = false;
  stacks_to_read_.clear();
  suspects_.clear();
}

}  // namespace ddprun
