// One rank of a group on one machine: the Transport (trainer/collectives/transport.hpp) over a segment of shared memory.
//
// How a rank waits. It reads the other rank's word for a few microseconds. Then it sleeps in a futex on this word. The other
// rank, or an abort, ends this sleep immediately. A sleep lasts at most 5 ms. After it, the rank checks the limit, and whether
// the process of a missing rank has ended. So a wait for a lost rank ends within 10 ms even without an agent. The cost: a
// sleeping rank makes two short system calls for each missing rank, 200 times per second.
//
// If a rank ends before it has attached, the other ranks do not know its process. They wait until their limit, or until the
// agent aborts.
//
// A rank that detects a lost rank, a mismatch or an exceeded limit aborts the segment, so that all other ranks stop too.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trainer/collectives/flag_word.hpp"
#include "trainer/collectives/shared_memory/peer_process.hpp"
#include "trainer/collectives/shared_memory/segment.hpp"
#include "trainer/collectives/transport.hpp"

namespace ddprun::trainer::collectives {

struct WaitSettings {
  std::chrono::milliseconds limit = std::chrono::minutes(30);  // maximum time of one wait
  std::chrono::microseconds spin{0};                           // time for which a rank reads the word before it sleeps
};

// Returns the default settings: ranks spin only if each has its own core.
WaitSettings waits_for(int ranks);
// Returns the spin time for these numbers of ranks and cores. This function is the pure part of waits_for().
std::chrono::microseconds spin_for(int ranks, int cores);

class SharedTransport final : public Transport {
 public:
  // Attaches this process as `rank`. Each rank attaches once.
  static std::variant<std::unique_ptr<SharedTransport>, SegmentError> attach(std::shared_ptr<const Segment> segment, int rank,
                                                                             const WaitSettings& waits);

  int rank() const override { return rank_; }
  int ranks() const override { return segment_->ranks(); }
  void start(const OperationDescriptor& operation) override;
  OperationDescriptor started_by(int rank) const override;
  std::uint32_t arrive() override;
  void await_all(std::uint32_t phase) override;
  [[noreturn]] void fail_mismatch(const std::string& message) override;
  std::size_t next_slot() override;
  std::size_t slot_bytes() const override;
  std::byte* slot_of(int rank, std::size_t slot) const override;
  std::optional<std::uint64_t> offset_of(const void* buffer, std::size_t bytes) const override;
  std::byte* exposed_at(int rank, std::uint64_t offset, std::size_t bytes) const override;
  std::size_t cell_bytes() const override;
  std::byte* cell_of(int from, int to, std::size_t cell) const override;
  void arrive_in_lane(int from, int to, LaneEnd end) override;
  void await_in_lane(int from, int to, LaneEnd end, std::uint64_t cells) override;
  bool reached_in_lane(int from, int to, LaneEnd end, std::uint64_t cells) override;
  void set_progress(std::function<bool()> progress) override { progress_ = std::move(progress); }

 private:
  friend class FutexWaiter;
  SharedTransport(std::shared_ptr<const Segment> segment, int rank, const WaitSettings& waits);
  // Returns true if the process of this rank has ended.
  bool has_ended(int rank);
  [[noreturn]] void throw_aborted() const;
  [[noreturn]] void give_up(std::optional<int> lost, int awaited);
  std::string what_it_does() const;
  bool make_progress();

  std::shared_ptr<const Segment> segment_;
  int rank_;
  WaitSettings waits_;
  std::uint32_t phase_ = 0;
  std::uint32_t operations_ = 0;
  std::size_t slots_ = 0;
  bool in_lane_ = false;
  std::function<bool()> progress_;
  std::vector<std::optional<PeerProcess>> peers_;
};

}  // namespace ddprun::trainer::collectives
