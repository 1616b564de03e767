// Implementation of hang_inquiry.hpp, in the order of an inquiry: the deadline passes, the workers are asked, a verdict is
// found, stacks are taken, the hang is reported. Progress of any worker meanwhile ends the inquiry.
#include "launcher/hang/hang_inquiry.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "launcher/events/progress.hpp"
#include "launcher/hang/process_summary.hpp"
#include "launcher/workers/stuck_workers.hpp"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{1000};
constexpr milliseconds kLateOurselves{1000};  // a timer fires this late when this process was stopped, and not the workers
constexpr milliseconds kOneStack{10000};
constexpr milliseconds kAllStacks{15000};
constexpr std::size_t kMostStacks = 4;
constexpr double kLongestSave = 1e7;  // seconds

std::string spoken_time(milliseconds time) {
  return format_duration(static_cast<double>(time.count()) / 1000);
}

}  // namespace

HangInquiry::HangInquiry(boost::asio::io_context& io, HangSettings settings, Hooks hooks)
    : io_(io), settings_(settings), hooks_(std::move(hooks)), watch_(settings.limits), timer_(io) {}

void HangInquiry::begin_round(const Round& round) {
  end_round();
  round_ = round;
  if (!settings_.limits.watch) return;
  // On other nodes a script may print nothing at all, so the node of rank 0 decides for the job.
  if (!settings_.channel && round.rank_offset > 0) return;
  const auto others = round.rank_offset > 0 ? HangWatch::Others::kUnheard : HangWatch::Others::kNone;
  watch_.begin_round(round.workers, settings_.channel ? Activity::kStart : Activity::kStep, others, Clock::now());
  wait_for_deadline();
}

void HangInquiry::heard(int rank, const channel::FromWorker& message) {
  if (!settings_.limits.watch) return;
  if (const auto* position = std::get_if<channel::Position>(&message)) {
    for (Suspect& suspect : suspects_)
      if (suspect.subject.rank == rank) suspect.observation.position = *position;
    stepped_of_script(rank, position->step);
    if (asking_) answers_may_be_in();
    return;
  }
  if (const auto* change = std::get_if<channel::PhaseChange>(&message)) {
    watch_.entered(rank, activity_of(change->phase), Clock::now());
    deadline_may_be_sooner();
  } else if (const auto* published = std::get_if<channel::CheckpointPublished>(&message)) {
    if (!(published->save_s >= 0 && published->save_s < kLongestSave)) return;  // a script may report any number
    watch_.wrote(std::chrono::duration_cast<HangWatch::Duration>(std::chrono::duration<double>(published->save_s)));
  } else if (const auto* progress = std::get_if<channel::Progress>(&message)) {
    const auto now = Clock::now();
    stepped_of_script(rank, progress->step);
    watch_.stepped(rank, now);
    if (now - last_look_ >= kLookEvery) deadline_may_be_sooner();
  }
}

// A script reports only some of its steps, so its answer may show progress that was not reported.
void HangInquiry::stepped_of_script(int rank, std::int64_t step) {
  if (settings_.channel) return;
  const auto [told, first] = steps_told_.emplace(rank, step);
  if (!first && step > told->second) watch_.stepped(rank, Clock::now());
  told->second = step;
}

void HangInquiry::printed(int rank) {
  if (settings_.limits.watch && !can_be_asked(rank)) watch_.stepped(rank, Clock::now());
}

void HangInquiry::gone(int rank) {
  watch_.gone(rank);
  steps_told_.erase(rank);
  deadline_may_be_sooner();
}

void HangInquiry::end_round() {
  give_up_inquiry();
  steps_told_.clear();
  watch_.begin_round(0, Activity::kStep, HangWatch::Others::kNone, {});
  timer_.cancel();
}

// A new phase may have a shorter limit, and so may a limit that the watch has just learned.
void HangInquiry::deadline_may_be_sooner() {
  last_look_ = Clock::now();
  const auto deadline = watch_.deadline();
  if (suspects_.empty() && deadline && *deadline < timer_.expiry()) wait_for_deadline();
}

// The timer is set once for a deadline and not at each message: when it fires after progress, it is set to the new deadline.
void HangInquiry::wait_for_deadline() {
  const auto deadline = watch_.deadline();
  if (!deadline) return;
  timer_.expires_at(*deadline);
  timer_.async_wait([this, deadline = *deadline](const boost::system::error_code& error) {
    if (!error) on_deadline(deadline);
  });
}

void HangInquiry::on_deadline(Clock::time_point deadline) {
  const auto now = Clock::now();
  if (now - deadline > kLateOurselves) watch_.forgive(now);
  if (hooks_.bytes_in_files) {
    const std::optional<std::uintmax_t> bytes = hooks_.bytes_in_files();
    if (bytes != bytes_in_files_ && steps_told_.empty()) watch_.forgive(now);
    if (bytes) bytes_in_files_ = *bytes;
  }
  if (!moved_since() && hooks_.matters()) return inquire();
  if (!moved_since()) watch_.forgive(now);
  wait_for_deadline();
}

bool HangInquiry::moved_since() const {
  const auto deadline = watch_.deadline();
  return !deadline || *deadline > Clock::now();
}

void HangInquiry::inquire() {
  suspects_.clear();
  const std::vector<pid_t> pids = hooks_.workers();
  // The verdict compares the workers' positions, so it needs those of all workers.
  bool all_can = true;
  for (std::size_t rank = 0; rank < pids.size(); ++rank)
    all_can = all_can && (pids[rank] <= 0 || can_be_asked(static_cast<int>(rank)));
  for (std::size_t rank = 0; rank < pids.size(); ++rank) {
    if (pids[rank] <= 0) continue;
    const Subject subject{static_cast<int>(rank), pids[rank]};
    HangObservation observation{.rank = round_.rank_offset + subject.rank, .process_state = process_state(subject.pid)};
    observation.asked = all_can;
    suspects_.push_back({subject, observation});
  }
  if (suspects_.empty()) {  // no worker has started yet
    watch_.forgive(Clock::now());
    return wait_for_deadline();
  }
  asking_ = true;
  to_judge_ = true;
  if (all_can)
    for (const Suspect& suspect : suspects_) hooks_.ask(suspect.subject.rank);
  timer_.expires_after(settings_.answer_time);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) judge();
  });
  answers_may_be_in();
}

void HangInquiry::answers_may_be_in() {
  const bool awaited = std::any_of(suspects_.begin(), suspects_.end(), [](const Suspect& s) {
    return s.observation.asked && !s.observation.position && s.observation.process_state != 'T' &&
           s.observation.process_state != 't';
  });
  if (awaited) return;
  asking_ = false;
  // Later, since an answer is one of several messages that have arrived: an earlier one may report progress.
  timer_.expires_after(milliseconds{0});
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) judge();
  });
}

// Judges once for each question. When the time for answers ends in the same turn of the loop as the last answer, both timers
// call this.
void HangInquiry::judge() {
  if (!std::exchange(to_judge_, false)) return;
  asking_ = false;
  if (moved_since()) {
    give_up_inquiry();
    return wait_for_deadline();
  }
  std::vector<HangObservation> observations;
  for (Suspect& suspect : suspects_) {
    suspect.observation.process_state = process_state(suspect.subject.pid);
    observations.push_back(suspect.observation);
  }
  verdict_ = judge_hang(observations);
  // When all ranks here wait, the rank that they wait for may be on another node. The agent there finds it, after its own time
  // limit and the stacks that it takes.
  if (verdict_.certainty == HangVerdict::Certainty::kGuess && round_.many_nodes && !second_look_) {
    second_look_ = true;
    const auto silent = watch_.silence_of(verdict_.culprits.front() - round_.rank_offset, Clock::now()).lasted;
    timer_.expires_after(std::max(watch_.longest_elsewhere() - silent, HangWatch::Duration{}) + settings_.answer_time +
                         kAllStacks);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      if (moved_since()) {
        give_up_inquiry();
        wait_for_deadline();
      } else {
        inquire();
      }
    });
    return;
  }
  message_ = message_of(verdict_);
  take_stacks();
}

std::string HangInquiry::message_of(const HangVerdict& verdict) const {
  const int rank = verdict.culprits.front() - round_.rank_offset;
  const HangWatch::Silence silence = watch_.silence_of(rank, Clock::now());
  const char* what = can_be_asked(rank) ? "no progress for " : "no output of any worker for ";
  return "hangs: " + std::string(what) + spoken_time(silence.lasted) + " (limit " + spoken_time(silence.limit) +
         (silence.learned ? ", learned from this run" : ", --hang-timeout") + "); it " + verdict.why +
         (silence.activity == Activity::kSave ? "; --hang-timeout save=SECONDS allows more" : "");
}

// Suspects come first. Each process is stopped for a moment while its stack is read.
void HangInquiry::take_stacks() {
  if (!tool_) tool_ = hooks_.find_tool ? hooks_.find_tool(settings_.python) : find_stack_tool(settings_.python);
  stacks_to_take_.clear();
  if (tool_ && !tool_->name.empty()) {
    const auto is_culprit = [this](std::size_t i) {
      const auto& culprits = verdict_.culprits;
      return std::find(culprits.begin(), culprits.end(), suspects_[i].observation.rank) != culprits.end();
    };
    for (std::size_t i = 0; i < suspects_.size(); ++i) stacks_to_take_.push_back(i);
    std::stable_partition(stacks_to_take_.begin(), stacks_to_take_.end(), is_culprit);
    stacks_to_take_.resize(std::min(stacks_to_take_.size(), kMostStacks));
    std::reverse(stacks_to_take_.begin(), stacks_to_take_.end());
  }
  stacks_until_ = Clock::now() + kAllStacks;
  take_next_stack();
}

void HangInquiry::take_next_stack() {
  const auto left = std::chrono::duration_cast<milliseconds>(stacks_until_ - Clock::now());
  if (stacks_to_take_.empty() || left.count() <= 0) return tell();
  const std::size_t next = stacks_to_take_.back();
  stacks_to_take_.pop_back();
  stack_run_ = std::make_unique<StackRun>(io_, *tool_, suspects_[next].subject.pid, std::min(left, kOneStack),
                                          [this, next](std::vector<std::string> frames) {
                                            suspects_[next].stack = std::move(frames);
                                            take_next_stack();
                                          });
}

void HangInquiry::tell() {
  std::vector<HangFinding> findings;
  for (const Suspect& suspect : suspects_) {
    HangFinding finding{.rank = suspect.subject.rank};
    const auto& culprits = verdict_.culprits;
    if (std::find(culprits.begin(), culprits.end(), suspect.observation.rank) != culprits.end()) finding.blame = message_;
    std::string line = "rank " + std::to_string(suspect.observation.rank) + ": ";
    if (suspect.observation.position) line += "in " + describe(*suspect.observation.position) + "; ";
    if (suspect.observation.asked && !suspect.observation.position) line += "no answer; ";
    finding.evidence.push_back(line + process_summary(suspect.subject.pid));
    for (const std::string& frame : suspect.stack) finding.evidence.push_back("  " + frame);
    findings.push_back(std::move(finding));
  }
  give_up_inquiry();
  hooks_.found(std::move(findings));
}

void HangInquiry::give_up_inquiry() {
  asking_ = false;
  to_judge_ = false;
  second_look_ = false;
  stack_run_.reset();
  stacks_to_take_.clear();
  suspects_.clear();
}

}  // namespace ddprun
