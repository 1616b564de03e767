// Implementation of shared_transport.hpp.
#include "trainer/collectives/shared_memory/shared_transport.hpp"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "common/base/check.hpp"
#include "trainer/collectives/shared_memory/futex.hpp"

namespace ddprun::trainer::collectives {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSlice(5);
constexpr std::chrono::microseconds kSliceWithMessages(200);  // while started messages of this rank are unfinished
constexpr int kReadsPerClock = 16;                            // reads of a word between two reads of the clock

inline void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

// The waiter for await_phase() (flag_word.hpp). Reads the clock only if the first reads of the word fail.
class FutexWaiter {
 public:
  FutexWaiter(SharedTransport& transport, std::uint32_t phase) : transport_(transport), phase_(phase) {}

  // Sets the rank and word of this wait. A wait for all ranks checks the processes of all of them, since the awaited rank may
  // itself wait for another rank.
  void await(int rank, Word& word, bool all) {
    rank_ = rank;
    word_ = &word;
    all_ = all;
  }

  bool spins() {
    if (slept_ || transport_.waits_.spin.count() == 0) return false;
    pause_processor();
    if (++reads_ % kReadsPerClock != 0) return true;
    const Clock::time_point now = Clock::now();
    if (reads_ == kReadsPerClock) spin_end_ = now + transport_.waits_.spin;
    return now < spin_end_;
  }

  bool sleeps(Word& word, std::uint32_t seen) {
    const Clock::duration slice = transport_.make_progress() ? Clock::duration(kSliceWithMessages) : Clock::duration(kSlice);
    const Clock::time_point before = Clock::now();
    if (!slept_) {
      limit_ = before + transport_.waits_.limit;
      checked_ = before;
    }
    slept_ = true;
    futex_wait(word, seen, std::clamp<Clock::duration>(limit_ - before, Clock::duration::zero(), slice));
    const Clock::time_point now = Clock::now();
    if (now >= limit_) return false;
    if (now - checked_ >= kSlice) {
      checked_ = now;
      lost_ = find_lost();
    }
    return !lost_;
  }

  std::optional<int> lost() const { return lost_; }

 private:
  bool is_lost(int rank, const Word& word) {
    // A rank may end after it has published the phase. So its word is read after the check of its process.
    return transport_.has_ended(rank) && !has_reached(word.load(std::memory_order_acquire), phase_);
  }

  std::optional<int> find_lost() {
    if (!all_) return is_lost(rank_, *word_) ? std::optional(rank_) : std::nullopt;
    for (int rank = 0; rank < transport_.ranks(); ++rank) {
      if (rank != transport_.rank() && is_lost(rank, transport_.segment_->control_of(rank).word)) return rank;
    }
    return std::nullopt;
  }

  SharedTransport& transport_;
  std::uint32_t phase_;
  int rank_ = 0;
  Word* word_ = nullptr;
  bool all_ = false;
  int reads_ = 0;
  bool slept_ = false;
  Clock::time_point spin_end_{};
  Clock::time_point limit_{};
  Clock::time_point checked_{};  // time of the newest check for lost ranks
  std::optional<int> lost_;
};

std::chrono::microseconds spin_for(int ranks, int cores) {
  return std::chrono::microseconds(ranks <= cores ? 5 : 0);
}

WaitSettings waits_for(int ranks) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const int count = ::sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
  return {.spin = spin_for(ranks, count)};
}

std::variant<std::unique_ptr<SharedTransport>, SegmentError> SharedTransport::attach(std::shared_ptr<const Segment> segment,
                                                                                     int rank, const WaitSettings& waits) {
  RankControl& control = segment->control_of(rank);
  const ProcessIdentity identity = this_process();
  std::int32_t none = 0;
  // -1 reserves the rank while its identity is not complete.
  if (!control.pid.compare_exchange_strong(none, -1, std::memory_order_acq_rel)) {
    return SegmentError{"rank " + std::to_string(rank) + " of this segment already belongs to process " + std::to_string(none) +
                        ". Create a segment for each group of ranks"};
  }
  control.start_time = identity.start_time;
  control.pid_namespace = identity.pid_namespace;
  control.pid.store(identity.pid, std::memory_order_release);
  return std::unique_ptr<SharedTransport>(new SharedTransport(std::move(segment), rank, waits));
}

SharedTransport::SharedTransport(std::shared_ptr<const Segment> segment, int rank, const WaitSettings& waits)
    : segment_(std::move(segment)), rank_(rank), waits_(waits), peers_(static_cast<std::size_t>(segment_->ranks())) {}

void SharedTransport::start(const OperationDescriptor& operation) {
  ++operations_;
  segment_->control_of(rank_).operations[operations_ % 2] = operation;
}

OperationDescriptor SharedTransport::started_by(int rank) const {
  return segment_->control_of(rank).operations[operations_ % 2];
}

std::uint32_t SharedTransport::arrive() {
  phase_ += kPhaseStep;
  if (!advance_word(segment_->control_of(rank_).word, futex_wake_all)) throw_aborted();
  return phase_;
}

void SharedTransport::await_all(std::uint32_t phase) {
  in_lane_ = false;
  FutexWaiter waiter(*this, phase);
  for (int rank = 0; rank < ranks(); ++rank) {
    if (rank == rank_) continue;
    Word& word = segment_->control_of(rank).word;
    waiter.await(rank, word, /*all=*/true);
    const WaitOutcome outcome = await_phase(word, phase, waiter);
    if (outcome == WaitOutcome::kAborted) throw_aborted();
    if (outcome == WaitOutcome::kGaveUp) give_up(waiter.lost(), rank);
  }
}

void SharedTransport::arrive_in_lane(int from, int to, LaneEnd end) {
  in_lane_ = true;
  if (!advance_word(segment_->lane_word_of(from, to, end), futex_wake_all)) throw_aborted();
}

void SharedTransport::await_in_lane(int from, int to, LaneEnd end, std::uint64_t cells) {
  in_lane_ = true;
  const auto phase = static_cast<std::uint32_t>(cells * kPhaseStep);
  const int other = end == LaneEnd::kSender ? from : to;
  Word& word = segment_->lane_word_of(from, to, end);
  FutexWaiter waiter(*this, phase);
  waiter.await(other, word, /*all=*/false);
  const WaitOutcome outcome = await_phase(word, phase, waiter);
  if (outcome == WaitOutcome::kAborted) throw_aborted();
  if (outcome == WaitOutcome::kGaveUp) give_up(waiter.lost(), other);
}

bool SharedTransport::reached_in_lane(int from, int to, LaneEnd end, std::uint64_t cells) {
  const auto phase = static_cast<std::uint32_t>(cells * kPhaseStep);
  return has_reached(segment_->lane_word_of(from, to, end).load(std::memory_order_acquire), phase);
}

bool SharedTransport::make_progress() {
  if (!progress_) return false;
  const bool in_lane = in_lane_;  // the progress of messages must not change the name of this wait
  const bool more = progress_();
  in_lane_ = in_lane;
  return more;
}

bool SharedTransport::has_ended(int rank) {
  std::optional<PeerProcess>& peer = peers_[static_cast<std::size_t>(rank)];
  if (!peer) {
    const RankControl& control = segment_->control_of(rank);
    const std::int32_t pid = control.pid.load(std::memory_order_acquire);
    if (pid <= 0) return false;  // the rank has not attached yet
    peer.emplace(ProcessIdentity{pid, control.start_time, control.pid_namespace});
  }
  return peer->has_ended();
}

void SharedTransport::fail_mismatch(const std::string& message) {
  segment_->abort({.kind = AbortCause::Kind::kMismatch, .rank = rank_, .by = rank_});
  throw CollectiveError(CollectiveFailure::kMismatch, -1, message);
}

void SharedTransport::give_up(std::optional<int> lost, int awaited) {
  const int rank = lost.value_or(awaited);
  segment_->abort({.kind = lost ? AbortCause::Kind::kRankLost : AbortCause::Kind::kLimit, .rank = rank, .by = rank_});
  const std::string place = " while rank " + std::to_string(rank_) + " waited for it in " + what_it_does();
  if (lost) {
    throw CollectiveError(
        CollectiveFailure::kRankLost, rank,
        "the process of rank " + std::to_string(rank) + " has ended" + place + ". Form a new group of the remaining ranks");
  }
  throw CollectiveError(CollectiveFailure::kLimit, rank,
                        "rank " + std::to_string(rank) + " has not arrived within the limit of " +
                            std::to_string(waits_.limit.count()) + " ms" + place + ". Check whether rank " +
                            std::to_string(rank) + " hangs, or raise the limit");
}

void SharedTransport::throw_aborted() const {
  const AbortCause cause = segment_->abort_cause();
  const std::string by = std::to_string(cause.by);
  const std::string rank = std::to_string(cause.rank);
  const std::string where = " (rank " + std::to_string(rank_) + " was in " + what_it_does() + ")";
  switch (cause.kind) {
    case AbortCause::Kind::kLimit:
      throw CollectiveError(CollectiveFailure::kLimit, cause.rank,
                            "the group was aborted, because rank " + by + " has waited too long for rank " + rank + where);
    case AbortCause::Kind::kRankLost:
      throw CollectiveError(CollectiveFailure::kRankLost, cause.rank,
                            "the group was aborted, because the process of rank " + rank + " has ended" + where);
    case AbortCause::Kind::kMismatch:
      throw CollectiveError(CollectiveFailure::kMismatch, cause.rank,
                            "the group was aborted, because rank " + by + " has found ranks with different calls" + where);
    case AbortCause::Kind::kNone:
    case AbortCause::Kind::kOutside:
      break;
  }
  throw CollectiveError(CollectiveFailure::kAborted, -1, "the group was aborted" + where + ". Form a new group");
}

std::string SharedTransport::what_it_does() const {
  if (in_lane_) return "a message";
  return text_of(segment_->control_of(rank_).operations[operations_ % 2]);
}

std::size_t SharedTransport::next_slot() {
  return slots_++ % kSlots;
}

std::size_t SharedTransport::slot_bytes() const {
  return segment_->layout().sizes.slot_bytes;
}

std::byte* SharedTransport::slot_of(int rank, std::size_t slot) const {
  return segment_->at(segment_->layout().slot_of(rank, slot));
}

std::optional<std::uint64_t> SharedTransport::offset_of(const void* buffer, std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(buffer);
  const auto area = reinterpret_cast<std::uintptr_t>(segment_->at(segment_->layout().data_of(rank_)));
  const std::uint64_t size = segment_->layout().sizes.data_bytes;
  if (address < area || address - area > size || bytes > size - (address - area)) return std::nullopt;
  return address - area;
}

std::byte* SharedTransport::exposed_at(int rank, std::uint64_t offset, std::size_t bytes) const {
  const std::uint64_t size = segment_->layout().sizes.data_bytes;
  check(offset <= size && bytes <= size - offset, "an exposed buffer is outside the data area of its rank");
  return segment_->at(segment_->layout().data_of(rank)) + offset;
}

std::size_t SharedTransport::cell_bytes() const {
  return segment_->layout().sizes.cell_bytes;
}

std::byte* SharedTransport::cell_of(int from, int to, std::size_t cell) const {
  return segment_->at(segment_->layout().cell_of(from, to, cell));
}

}  // namespace ddprun::trainer::collectives
