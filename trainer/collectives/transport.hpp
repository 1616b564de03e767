// The interface between the collectives and the memory and flags through which ranks communicate. SharedTransport
// (shared_memory/shared_transport.hpp) is the implementation for ranks on one machine.
//
// A rank has three kinds of memory that other ranks can read: 4 slots, through which chunks of data are copied; a data area
// for the caller's buffers; and lanes for messages to one rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>

#include "trainer/collectives/operation.hpp"

namespace ddprun::trainer::collectives {

enum class CollectiveFailure {
  kAborted,   // the group was aborted from outside
  kLimit,     // a rank did not reach a phase in time
  kRankLost,  // the process of a rank has ended
  kMismatch,  // ranks call different collectives
};

// After this error, the group can't be used any more, and the contents of the buffers are undefined.
class CollectiveError : public std::runtime_error {
 public:
  CollectiveError(CollectiveFailure failure, int rank, const std::string& message)
      : std::runtime_error(message), failure_(failure), rank_(rank) {}
  CollectiveFailure failure() const noexcept { return failure_; }
  int rank() const noexcept { return rank_; }  // rank that caused the failure; -1 if unknown

 private:
  CollectiveFailure failure_;
  int rank_;
};

inline constexpr std::size_t kSlots = 4;

enum class LaneEnd { kSender, kReceiver };

// One rank's access to its group. The class is not thread-safe. All waits throw CollectiveError if the group is aborted, a rank
// ends, or the limit is exceeded.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;

  // Starts the next operation. The following arrive() publishes the descriptor.
  virtual void start(const OperationDescriptor& operation) = 0;
  // Returns the descriptor of the current operation of a rank. Call this after await_all() for the operation's first phase.
  virtual OperationDescriptor started_by(int rank) const = 0;
  // Publishes all previous writes. Returns the phase for await_all().
  virtual std::uint32_t arrive() = 0;
  // Waits until all ranks have reached this phase.
  virtual void await_all(std::uint32_t phase) = 0;
  // Aborts the group because of a mismatch, and throws.
  [[noreturn]] virtual void fail_mismatch(const std::string& message) = 0;

  // Returns the next of the slots, which are used in turn. All ranks must call this the same number of times.
  virtual std::size_t next_slot() = 0;
  virtual std::size_t slot_bytes() const = 0;
  virtual std::byte* slot_of(int rank, std::size_t slot) const = 0;
  // Returns the offset of a buffer in the data area of this rank; nullopt if the buffer is elsewhere.
  virtual std::optional<std::uint64_t> offset_of(const void* buffer, std::size_t bytes) const = 0;
  // Returns the address of a buffer in a rank's data area. Throws InternalError if the buffer exceeds the data area.
  virtual std::byte* exposed_at(int rank, std::uint64_t offset, std::size_t bytes) const = 0;

  // A lane is a queue of two cells from one rank to another.
  virtual std::size_t cell_bytes() const = 0;
  virtual std::byte* cell_of(int from, int to, std::size_t cell) const = 0;
  // Publishes that one more cell was filled (kSender) or emptied (kReceiver).
  virtual void arrive_in_lane(int from, int to, LaneEnd end) = 0;
  // Waits until `cells` cells in total were filled (kSender) or emptied (kReceiver).
  virtual void await_in_lane(int from, int to, LaneEnd end, std::uint64_t cells) = 0;
  // Returns true if `cells` cells in total were filled (kSender) or emptied (kReceiver). Does not wait.
  virtual bool reached_in_lane(int from, int to, LaneEnd end, std::uint64_t cells) = 0;
  // Each wait calls `progress` before it sleeps. If it returns true, the sleep is short, since `progress` has more to do when
  // another rank arrives in a lane. An empty function ends this. `progress` must not wait.
  virtual void set_progress(std::function<bool()> progress) = 0;
};

}  // namespace ddprun::trainer::collectives
