// Implementation of send_receive.hpp.
#include "trainer/collectives/send_receive.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "common/base/check.hpp"

namespace ddprun::trainer::collectives {
namespace {

constexpr std::uint64_t kCells = 2;

std::size_t index_of(int rank) {
  return static_cast<std::size_t>(rank);
}

}  // namespace

Messages::Messages(Transport& transport)
    : transport_(transport), filled_(index_of(transport.ranks())), emptied_(index_of(transport.ranks())) {
  check(transport.cell_bytes() > kHeaderBytes, "a cell of a lane has no space for data");
}

void Messages::send(int to, std::uint64_t tag, std::span<const std::byte> data) {
  check(to >= 0 && to < transport_.ranks() && to != transport_.rank(),
        "the receiver of a message is not another rank of the group");
  const int self = transport_.rank();
  std::uint64_t& filled = filled_[index_of(to)];
  const std::size_t per_cell = transport_.cell_bytes() - kHeaderBytes;
  std::size_t done = 0;
  do {
    // A lane has two cells, so the next cell to fill is the one that was filled two cells ago. It is free when the receiver has
    // emptied it.
    if (filled >= kCells) transport_.await_in_lane(self, to, LaneEnd::kReceiver, filled - kCells + 1);
    std::byte* const cell = transport_.cell_of(self, to, filled % kCells);
    const Header header{.tag = tag, .bytes = data.size()};
    std::memcpy(cell, &header, sizeof(header));
    const std::size_t bytes = std::min(per_cell, data.size() - done);
    if (bytes > 0) std::memcpy(cell + kHeaderBytes, data.data() + done, bytes);
    done += bytes;
    ++filled;
    transport_.arrive_in_lane(self, to, LaneEnd::kSender);
  } while (done < data.size());
}

void Messages::receive(int from, std::uint64_t tag, std::span<std::byte> data) {
  check(from >= 0 && from < transport_.ranks() && from != transport_.rank(),
        "the sender of a message is not another rank of the group");
  if (const auto kept = kept_.find({from, tag}); kept != kept_.end()) {
    const std::vector<std::byte> message = std::move(kept->second.front());
    kept->second.pop_front();
    if (kept->second.empty()) kept_.erase(kept);
    kept_bytes_ -= message.size();
    refuse_other_size(from, tag, message.size(), data.size());
    std::copy(message.begin(), message.end(), data.begin());
    return;
  }
  while (true) {
    const Header header = await_header(from);
    if (header.tag == tag) {
      refuse_other_size(from, tag, header.bytes, data.size());
      return take(from, data);
    }
    if (header.bytes > kMaxKeptBytes - kept_bytes_) {
      transport_.fail_mismatch("rank " + std::to_string(transport_.rank()) + " expects a message with tag " +
                               std::to_string(tag) + " from rank " + std::to_string(from) + ", which has sent more than " +
                               std::to_string(kMaxKeptBytes >> 20) + " MiB with other tags. Receive these messages first");
    }
    std::vector<std::byte> other(header.bytes);
    take(from, other);
    kept_bytes_ += other.size();
    kept_[{from, header.tag}].push_back(std::move(other));
  }
}

Messages::Header Messages::await_header(int from) {
  const std::uint64_t emptied = emptied_[index_of(from)];
  transport_.await_in_lane(from, transport_.rank(), LaneEnd::kSender, emptied + 1);
  Header header;
  std::memcpy(&header, transport_.cell_of(from, transport_.rank(), emptied % kCells), sizeof(header));
  return header;
}

void Messages::take(int from, std::span<std::byte> data) {
  std::uint64_t& emptied = emptied_[index_of(from)];
  const std::size_t per_cell = transport_.cell_bytes() - kHeaderBytes;
  std::size_t done = 0;
  do {
    transport_.await_in_lane(from, transport_.rank(), LaneEnd::kSender, emptied + 1);
    const std::byte* const cell = transport_.cell_of(from, transport_.rank(), emptied % kCells);
    const std::size_t bytes = std::min(per_cell, data.size() - done);
    if (bytes > 0) std::memcpy(data.data() + done, cell + kHeaderBytes, bytes);
    done += bytes;
    ++emptied;
    transport_.arrive_in_lane(from, transport_.rank(), LaneEnd::kReceiver);
  } while (done < data.size());
}

void Messages::refuse_other_size(int from, std::uint64_t tag, std::size_t bytes, std::size_t expected) {
  if (bytes == expected) return;
  transport_.fail_mismatch("rank " + std::to_string(from) + " has sent " + std::to_string(bytes) + " bytes with tag " +
                           std::to_string(tag) + ", and rank " + std::to_string(transport_.rank()) + " expects " +
                           std::to_string(expected) + " bytes. Pass the same size on both ranks");
}

}  // namespace ddprun::trainer::collectives
