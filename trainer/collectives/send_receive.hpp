// Messages between two ranks, with tags.
//
// A message passes through the lane from its sender to its receiver. A lane is a small queue of two cells in the segment. Only
// the sender and the receiver take part. send() returns when the last cell is filled, so the sender of a message of at most
// two cells does not wait for the receiver. The sender of a longer message waits. So if two ranks both start with a long
// message to each other, both wait until their limit.
//
// receive() returns the oldest message of its sender with this tag. Messages with other tags that arrive before are kept in
// this process, up to kMaxKeptBytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "trainer/collectives/transport.hpp"

namespace ddprun::trainer::collectives {

inline constexpr std::size_t kMaxKeptBytes = 256 << 20;

// Create one object for each transport. The class is not thread-safe. All functions throw CollectiveError.
class Messages {
 public:
  explicit Messages(Transport& transport);

  void send(int to, std::uint64_t tag, std::span<const std::byte> data);
  // Receives a message into `data`, which must have the size of the message.
  void receive(int from, std::uint64_t tag, std::span<std::byte> data);

 private:
  struct Header {
    std::uint64_t tag = 0;
    std::uint64_t bytes = 0;
  };
  static constexpr std::size_t kHeaderBytes = 64;  // keeps the data of a cell aligned

  void refuse_other_size(int from, std::uint64_t tag, std::size_t bytes, std::size_t expected);
  // Copies the message whose first cell has arrived to `data`.
  void take(int from, std::span<std::byte> data);
  Header await_header(int from);

  Transport& transport_;
  std::vector<std::uint64_t> filled_;                                                 // cells sent to each rank
  std::vector<std::uint64_t> emptied_;                                                // cells received from each rank
  std::map<std::pair<int, std::uint64_t>, std::deque<std::vector<std::byte>>> kept_;  // received messages by sender and tag
  std::size_t kept_bytes_ = 0;
};

}  // namespace ddprun::trainer::collectives
