// Messages between two ranks, with tags.
//
// A message passes through the lane from its sender to its receiver. A lane is a small queue of two cells in the segment. Only
// the two ranks take part.
//
// The problem. A message that is longer than two cells needs both ranks at the same time. If two ranks first send such a
// message to each other, or both first receive, and each waits until its own call is complete, none of them continues.
//
// The idea. start_send() and start_receive() do as much as is possible without a wait. The rest stays in a queue of this
// object. Each wait of this rank, in a message or in a collective, first advances all queues (Transport::set_progress). So no
// thread is needed. Example, with messages of 4 cells:
//
//     rank 0                             rank 1
//     start_send: fills 2 cells          start_send: fills 2 cells
//     receive: empties 2 cells, waits    receive: empties 2 cells, waits
//     wait: fills 2 cells                wait: fills 2 cells
//     receive: complete                  receive: complete
//
// Rules
//  - A receive gets the oldest message of its sender with its tag. Receives with the same tag complete in the order of their
//    start.
//  - A lane is emptied only while a receive from its sender is started. Messages with other tags that arrive before are kept in
//    this process, up to kMaxKeptBytes.
//  - While one lane is awaited, only this wait uses it. So the places at which a rank waits do not depend on the time.
//
// The cost. A rank with started messages sleeps at most 0.2 ms in its waits, since no futex wakes it for several lanes. Between
// its calls, a rank does not advance its messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "trainer/collectives/transport.hpp"

namespace ddprun::trainer::collectives {

inline constexpr std::size_t kMaxKeptBytes = 256 << 20;

// Create one object for each transport, and destroy it before the transport. The class is not thread-safe. All functions throw
// CollectiveError.
class Messages {
 public:
  // A message that was started with start_send() or start_receive().
  struct Started {
    int other = 0;  // the receiver or the sender
    bool sends = false;
    std::uint64_t number = 0;  // 0: it has ended already
  };

  explicit Messages(Transport& transport);
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  // Returns when the last cell is filled. So a message of at most two cells does not wait for the receiver.
  void send(int to, std::uint64_t tag, std::span<const std::byte> data);
  // Receives a message into `data`, which must have the size of the message.
  void receive(int from, std::uint64_t tag, std::span<std::byte> data);

  // These functions do not wait. `data` must stay valid until the message has ended; this object holds `owner` until then.
  Started start_send(int to, std::uint64_t tag, std::span<const std::byte> data, std::shared_ptr<const void> owner);
  Started start_receive(int from, std::uint64_t tag, std::span<std::byte> data, std::shared_ptr<const void> owner);
  // Advances all started messages without a wait. Returns true if this one has ended: its last cell is filled, or its data has
  // arrived.
  bool has_ended(const Started& message);
  // Waits until the message has ended.
  void finish(const Started& message);

 private:
  struct Header {
    std::uint64_t tag = 0;
    std::uint64_t bytes = 0;
  };
  static constexpr std::size_t kHeaderBytes = 64;  // keeps the data of a cell aligned

  struct Sent {
    std::uint64_t number = 0;
    std::uint64_t tag = 0;
    std::span<const std::byte> data{};
    std::size_t done = 0;
    std::shared_ptr<const void> owner{};
  };
  struct Awaited {
    std::uint64_t number = 0;
    std::uint64_t tag = 0;
    std::span<std::byte> data{};
    std::shared_ptr<const void> owner{};
  };
  // A message whose first cell was emptied. Its data goes to a started receive, or to `kept` if there is none with its tag.
  struct Arriving {
    Awaited target{};  // number 0: kept
    std::vector<std::byte> kept{};
    std::size_t done = 0;
  };
  struct Outgoing {
    std::uint64_t filled = 0;  // cells
    std::deque<Sent> messages{};
  };
  struct Incoming {
    std::uint64_t emptied = 0;  // cells
    std::deque<Awaited> awaited{};
    std::optional<Arriving> arriving{};
    bool is_read() const { return !awaited.empty() || arriving; }
  };

  void check_other(int other) const;
  void await_lane(int from, int to, LaneEnd end, std::uint64_t cells);
  bool is_free(int to);
  bool is_pending(const Started& message) const;
  // Does everything that is possible without a wait. Returns true if there are unfinished messages in other lanes than the
  // awaited one.
  bool progress();
  void fill_cell(int to);
  void empty_cell(int from);
  void begin_message(int from, const Header& header);
  void end_message(int from);
  std::optional<Awaited> take_awaited(int from, std::uint64_t tag, std::size_t bytes);
  bool take_kept(int from, std::uint64_t tag, std::span<std::byte> data);
  void refuse_other_size(int from, std::uint64_t tag, std::size_t bytes, std::size_t expected);

  Transport& transport_;
  std::vector<Outgoing> outgoing_;  // by receiver
  std::vector<Incoming> incoming_;  // by sender
  std::uint64_t newest_ = 0;        // number of the newest started message
  std::pair<int, int> awaited_lane_{-1, -1};
  std::map<std::pair<int, std::uint64_t>, std::deque<std::vector<std::byte>>> kept_;  // by sender and tag
  std::size_t kept_bytes_ = 0;
};

}  // namespace ddprun::trainer::collectives
