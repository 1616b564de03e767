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
    : transport_(transport), outgoing_(index_of(transport.ranks())), incoming_(index_of(transport.ranks())) {
  check(transport.cell_bytes() > kHeaderBytes, "a cell of a lane has no space for data");
  transport.set_progress([this] { return progress(); });
}

Messages::~Messages() {
  transport_.set_progress({});
}

void Messages::check_other(int other) const {
  check(other >= 0 && other < transport_.ranks() && other != transport_.rank(),
        "the sender or receiver of a message is not another rank of the group");
}

void Messages::send(int to, std::uint64_t tag, std::span<const std::byte> data) {
  check_other(to);
  outgoing_[index_of(to)].messages.push_back({.number = ++newest_, .tag = tag, .data = data});
  finish({.other = to, .sends = true, .number = newest_});
}

void Messages::receive(int from, std::uint64_t tag, std::span<std::byte> data) {
  check_other(from);
  if (take_kept(from, tag, data)) return;
  incoming_[index_of(from)].awaited.push_back({.number = ++newest_, .tag = tag, .data = data});
  finish({.other = from, .sends = false, .number = newest_});
}

Messages::Started Messages::start_send(int to, std::uint64_t tag, std::span<const std::byte> data,
                                       std::shared_ptr<const void> owner) {
  check_other(to);
  outgoing_[index_of(to)].messages.push_back({.number = ++newest_, .tag = tag, .data = data, .owner = std::move(owner)});
  const Started started{.other = to, .sends = true, .number = newest_};
  progress();
  return is_pending(started) ? started : Started{};
}

Messages::Started Messages::start_receive(int from, std::uint64_t tag, std::span<std::byte> data,
                                          std::shared_ptr<const void> owner) {
  check_other(from);
  if (take_kept(from, tag, data)) return {};
  incoming_[index_of(from)].awaited.push_back({.number = ++newest_, .tag = tag, .data = data, .owner = std::move(owner)});
  const Started started{.other = from, .sends = false, .number = newest_};
  progress();
  return is_pending(started) ? started : Started{};
}

bool Messages::has_ended(const Started& message) {
  progress();
  return !is_pending(message);
}

void Messages::finish(const Started& message) {
  while (is_pending(message)) {
    if (message.sends) {
      // A lane has two cells, so the next cell to fill is the one that was filled two cells ago. It is free when the receiver
      // has emptied it.
      const std::uint64_t filled = outgoing_[index_of(message.other)].filled;
      if (filled >= kCells) await_lane(transport_.rank(), message.other, LaneEnd::kReceiver, filled - kCells + 1);
      fill_cell(message.other);
    } else {
      await_lane(message.other, transport_.rank(), LaneEnd::kSender, incoming_[index_of(message.other)].emptied + 1);
      empty_cell(message.other);
    }
  }
}

void Messages::await_lane(int from, int to, LaneEnd end, std::uint64_t cells) {
  struct Marked {
    std::pair<int, int>& lane;
    ~Marked() { lane = {-1, -1}; }
  } const marked{awaited_lane_};
  awaited_lane_ = {from, to};
  transport_.await_in_lane(from, to, end, cells);
}

bool Messages::is_free(int to) {
  const std::uint64_t filled = outgoing_[index_of(to)].filled;
  return filled < kCells || transport_.reached_in_lane(transport_.rank(), to, LaneEnd::kReceiver, filled - kCells + 1);
}

bool Messages::is_pending(const Started& message) const {
  if (message.number == 0) return false;
  const auto is_this = [&](const auto& one) { return one.number == message.number; };
  if (message.sends) return std::ranges::any_of(outgoing_[index_of(message.other)].messages, is_this);
  const Incoming& in = incoming_[index_of(message.other)];
  return std::ranges::any_of(in.awaited, is_this) || (in.arriving && is_this(in.arriving->target));
}

bool Messages::progress() {
  const int self = transport_.rank();
  bool pending = false;
  for (int other = 0; other < transport_.ranks(); ++other) {
    if (other == self) continue;
    if (awaited_lane_ != std::pair(self, other)) {
      Outgoing& out = outgoing_[index_of(other)];
      while (!out.messages.empty() && is_free(other)) fill_cell(other);
      pending = pending || !out.messages.empty();
    }
    if (awaited_lane_ != std::pair(other, self)) {
      Incoming& in = incoming_[index_of(other)];
      while (in.is_read() && transport_.reached_in_lane(other, self, LaneEnd::kSender, in.emptied + 1)) empty_cell(other);
      pending = pending || in.is_read();
    }
  }
  return pending;
}

void Messages::fill_cell(int to) {
  Outgoing& out = outgoing_[index_of(to)];
  Sent& message = out.messages.front();
  std::byte* const cell = transport_.cell_of(transport_.rank(), to, out.filled % kCells);
  const Header header{.tag = message.tag, .bytes = message.data.size()};
  std::memcpy(cell, &header, sizeof(header));
  const std::size_t bytes = std::min(transport_.cell_bytes() - kHeaderBytes, message.data.size() - message.done);
  if (bytes > 0) std::memcpy(cell + kHeaderBytes, message.data.data() + message.done, bytes);
  message.done += bytes;
  ++out.filled;
  if (message.done == message.data.size()) out.messages.pop_front();
  transport_.arrive_in_lane(transport_.rank(), to, LaneEnd::kSender);
}

void Messages::empty_cell(int from) {
  Incoming& in = incoming_[index_of(from)];
  const std::byte* const cell = transport_.cell_of(from, transport_.rank(), in.emptied % kCells);
  if (!in.arriving) {
    Header header;
    std::memcpy(&header, cell, sizeof(header));
    begin_message(from, header);
  }
  Arriving& message = *in.arriving;
  const std::span<std::byte> data = message.target.number != 0 ? message.target.data : std::span(message.kept);
  const std::size_t bytes = std::min(transport_.cell_bytes() - kHeaderBytes, data.size() - message.done);
  if (bytes > 0) std::memcpy(data.data() + message.done, cell + kHeaderBytes, bytes);
  message.done += bytes;
  ++in.emptied;
  transport_.arrive_in_lane(from, transport_.rank(), LaneEnd::kReceiver);
  if (message.done == data.size()) end_message(from);
}

void Messages::begin_message(int from, const Header& header) {
  Incoming& in = incoming_[index_of(from)];
  if (std::optional<Awaited> target = take_awaited(from, header.tag, header.bytes)) {
    in.arriving = Arriving{.target = *std::move(target)};
    return;
  }
  if (header.bytes > kMaxKeptBytes - kept_bytes_) {
    transport_.fail_mismatch("rank " + std::to_string(transport_.rank()) + " expects a message with tag " +
                             std::to_string(in.awaited.front().tag) + " from rank " + std::to_string(from) +
                             ", which has sent more than " + std::to_string(kMaxKeptBytes >> 20) +
                             " MiB with other tags. Receive these messages first");
  }
  kept_bytes_ += header.bytes;
  in.arriving = Arriving{.target = {.tag = header.tag}, .kept = std::vector<std::byte>(header.bytes)};
}

void Messages::end_message(int from) {
  Incoming& in = incoming_[index_of(from)];
  Arriving message = std::move(*in.arriving);
  in.arriving.reset();
  if (message.target.number != 0) return;
  // A receive with this tag may have been started after the first cell.
  if (const std::optional<Awaited> target = take_awaited(from, message.target.tag, message.kept.size())) {
    std::ranges::copy(message.kept, target->data.begin());
    kept_bytes_ -= message.kept.size();
    return;
  }
  kept_[{from, message.target.tag}].push_back(std::move(message.kept));
}

// Returns the oldest receive with this tag, and removes it from the queue.
std::optional<Messages::Awaited> Messages::take_awaited(int from, std::uint64_t tag, std::size_t bytes) {
  std::deque<Awaited>& awaited = incoming_[index_of(from)].awaited;
  const auto found = std::ranges::find(awaited, tag, &Awaited::tag);
  if (found == awaited.end()) return std::nullopt;
  refuse_other_size(from, tag, bytes, found->data.size());
  Awaited taken = std::move(*found);
  awaited.erase(found);
  return taken;
}

bool Messages::take_kept(int from, std::uint64_t tag, std::span<std::byte> data) {
  const auto kept = kept_.find({from, tag});
  if (kept == kept_.end()) return false;
  const std::vector<std::byte> message = std::move(kept->second.front());
  kept->second.pop_front();
  if (kept->second.empty()) kept_.erase(kept);
  kept_bytes_ -= message.size();
  refuse_other_size(from, tag, message.size(), data.size());
  std::ranges::copy(message, data.begin());
  return true;
}

void Messages::refuse_other_size(int from, std::uint64_t tag, std::size_t bytes, std::size_t expected) {
  if (bytes == expected) return;
  transport_.fail_mismatch("rank " + std::to_string(from) + " has sent " + std::to_string(bytes) + " bytes with tag " +
                           std::to_string(tag) + ", and rank " + std::to_string(transport_.rank()) + " expects " +
                           std::to_string(expected) + " bytes. Pass the same size on both ranks");
}

}  // namespace ddprun::trainer::collectives
