// Implementation of segment_handover.hpp.
#include "trainer/parallel/shared/segment_handover.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>
#include <variant>
#include <vector>

#include "common/system/descriptor.hpp"
#include "trainer/collectives/shared_memory/peer_process.hpp"

namespace ddprun::trainer {
namespace {

using collectives::Segment;
using collectives::SegmentError;

constexpr const char* kSegmentKey = "segment";
constexpr std::string_view kNone = "none ";

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

SegmentAddress address_of(const Segment& segment) {
  struct stat status {};
  ::fstat(segment.fd(), &status);
  const collectives::ProcessIdentity self = collectives::this_process();
  return {.boot_id = boot_id(),
          .pid_namespace = self.pid_namespace,
          .pid = self.pid,
          .fd = segment.fd(),
          .device = static_cast<std::uint64_t>(status.st_dev),
          .inode = static_cast<std::uint64_t>(status.st_ino)};
}

std::variant<Segment, SegmentError> open_segment(const SegmentAddress& address, int ranks) {
  const collectives::ProcessIdentity self = collectives::this_process();
  if (address.boot_id != boot_id() || address.pid_namespace != self.pid_namespace) {
    return SegmentError{"rank 0 runs on another machine or in another container"};
  }
  const std::string path = "/proc/" + std::to_string(address.pid) + "/fd/" + std::to_string(address.fd);
  Descriptor memfd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (memfd.get() < 0) return SegmentError{std::string("the shared memory of rank 0 can't be opened: ") + std::strerror(errno)};
  struct stat status {};
  if (::fstat(memfd.get(), &status) != 0 || static_cast<std::uint64_t>(status.st_dev) != address.device ||
      static_cast<std::uint64_t>(status.st_ino) != address.inode) {
    return SegmentError{"the descriptor of rank 0 is not its shared memory any more"};
  }
  return Segment::map(std::move(memfd), ranks);
}

std::vector<std::uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string text(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::string key_of(int rank) {
  return "mapped/" + std::to_string(rank);
}

// Rank 0 calls this. Creates the segment, and announces the segment or the reason why it could not be created.
std::variant<Segment, SegmentError> announce_segment(c10d::Store& store, int ranks, std::uint64_t data_bytes) {
  auto created = Segment::create(collectives::sizes_for(ranks, data_bytes));
  const Segment* const segment = std::get_if<Segment>(&created);
  const std::string announced =
      segment != nullptr ? text_of(address_of(*segment)) : std::string(kNone) + std::get<SegmentError>(created).message;
  store.set(kSegmentKey, bytes(announced));
  return created;
}

}  // namespace

std::string text_of(const SegmentAddress& address) {
  std::ostringstream text;
  text << address.boot_id << ' ' << address.pid_namespace << ' ' << address.pid << ' ' << address.fd << ' ' << address.device
       << ' ' << address.inode;
  return text.str();
}

std::optional<SegmentAddress> address_in(std::string_view text) {
  std::istringstream stream{std::string(text)};
  SegmentAddress address;
  if (!(stream >> address.boot_id >> address.pid_namespace >> address.pid >> address.fd >> address.device >> address.inode)) {
    return std::nullopt;
  }
  std::string rest;
  if (stream >> rest || address.pid <= 0 || address.fd < 0) return std::nullopt;
  return address;
}

Handover share_segment(c10d::Store& store, int rank, int ranks, std::optional<std::uint64_t> data_bytes) {
  std::variant<Segment, SegmentError> own = SegmentError{};
  if (rank == 0) {
    if (!data_bytes) {
      store.set(kSegmentKey, bytes(std::string(kNone)));
      return {};
    }
    own = announce_segment(store, ranks, *data_bytes);
    if (const auto* const error = std::get_if<SegmentError>(&own)) return {.segment = nullptr, .reason = error->message};
  } else {
    const std::string announced = text(store.get(kSegmentKey));
    if (announced.starts_with(kNone)) return {.segment = nullptr, .reason = announced.substr(kNone.size())};
    const std::optional<SegmentAddress> address = address_in(announced);
    if (address) {
      own = open_segment(*address, ranks);
    } else {
      own = SegmentError{"the announcement of rank 0 is not readable. Start all ranks with the same version of ddprun"};
    }
  }
  if (const Segment* const segment = std::get_if<Segment>(&own)) {
    if (auto refusal = segment->allocate_part(rank)) own = *std::move(refusal);
  }
  const auto* const error = std::get_if<SegmentError>(&own);
  store.set(key_of(rank), bytes(error == nullptr ? "+" : "-rank " + std::to_string(rank) + ": " + error->message));
  for (int other = 0; other < ranks; ++other) {
    const std::string of_other = text(store.get(key_of(other)));
    if (!of_other.starts_with('+')) return {.segment = nullptr, .reason = of_other.empty() ? "" : of_other.substr(1)};
  }
  return {.segment = std::make_shared<const Segment>(std::get<Segment>(std::move(own))), .reason = ""};
}

}  // namespace ddprun::trainer
