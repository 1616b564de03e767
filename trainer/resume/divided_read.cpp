// Forms the reading groups, reads and exchanges the windows of each file, and handles the errors of divided_read.hpp.
#include "trainer/resume/divided_read.hpp"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/system/descriptor.hpp"
#include "common/system/resource_errors.hpp"
#include "trainer/checkpoint/hashed_file.hpp"
#include "trainer/checkpoint/manifest.hpp"
#include "trainer/checkpoint/pieces.hpp"
#include "trainer/layout/read_division.hpp"
#include "trainer/resume/tensor_stream.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxWindow = std::int64_t{16} << 20;  // bytes

[[noreturn]] void refuse(const fs::path& file, const std::string& problem, int error = 0) {
  const std::string text = "safetensors file " + file.string() + ": " + problem + (error != 0 ? std::strerror(error) : "");
  throw_if_resources_exhausted(error, text);
  throw UsageError(text);
}

// An open checkpoint, whose files all have the lengths that the manifest lists.
struct OpenCheckpoint {
  struct File {
    fs::path path;
    Descriptor opened;
    const StateFile* listed = nullptr;
  };
  fs::path path;
  Manifest manifest;
  std::vector<File> files;
};

OpenCheckpoint::File open_file(const fs::path& path, const StateFile& listed) {
  // O_NONBLOCK: open() of a FIFO must not block.
  OpenCheckpoint::File file{
      .path = path, .opened = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), .listed = &listed};
  if (file.opened.get() < 0) refuse(path, "cannot be opened: ", errno);
  struct stat status {};
  if (::fstat(file.opened.get(), &status) != 0 || !S_ISREG(status.st_mode)) refuse(path, "is not a regular file");
  if (status.st_size != listed.facts.bytes) {
    refuse(path,
           "has " + std::to_string(status.st_size) + " bytes, but its manifest lists " + std::to_string(listed.facts.bytes));
  }
  return file;
}

// Throws UsageError.
std::unique_ptr<OpenCheckpoint> open_checkpoint(const fs::path& path) {
  auto checkpoint = std::make_unique<OpenCheckpoint>();
  checkpoint->path = path;
  checkpoint->manifest = judged_manifest(path);
  for (const auto& [name, listed] : checkpoint->manifest.files) checkpoint->files.push_back(open_file(path / name, listed));
  return checkpoint;
}

// Returns a number that is equal on two ranks if they read the same checkpoint in the same folder of the same machine. Returns
// 0 if that is unknown, so that the rank reads alone.
std::int64_t group_key(const OpenCheckpoint& checkpoint) {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat folder {};
  if (boot.empty() || ::stat(checkpoint.path.c_str(), &folder) != 0) return 0;
  std::string text = boot;
  for (const std::string& part : {checkpoint.path.string(), std::to_string(folder.st_dev), std::to_string(folder.st_ino),
                                  encode_manifest(checkpoint.manifest)}) {
    text += '\n' + part;
  }
  constexpr std::size_t kDigits = 15;  // hex digits that fit into 63 bits
  return std::stoll(xxh3_128_of(text).substr(0, kDigits), nullptr, 16);
}

// The ranks that divide a read among themselves, in ascending order.
struct ReadingGroup {
  std::vector<int> ranks;
  int own = 0;  // index of this rank in `ranks`
  int members() const { return static_cast<int>(ranks.size()); }
};

ReadingGroup alone(const Peers& peers) {
  return {.ranks = {peers.rank()}};
}

ReadingGroup group_of(const std::vector<std::int64_t>& keys, const Peers& peers) {
  const std::int64_t own = keys[static_cast<std::size_t>(peers.rank())];
  if (own == 0) return alone(peers);
  ReadingGroup group;
  for (int rank = 0; rank < peers.world(); ++rank) {
    if (keys[static_cast<std::size_t>(rank)] != own) continue;
    if (rank == peers.rank()) group.own = group.members();
    group.ranks.push_back(rank);
  }
  return group;
}

// Reads a range of the file. Throws UsageError.
void read_range(const OpenCheckpoint::File& file, ByteRange range, char* to) {
  while (range.size() > 0) {
    const ssize_t got = ::pread(file.opened.get(), to, static_cast<std::size_t>(range.size()), range.begin);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(file.path, "cannot be read: ", errno);
    if (got == 0) refuse(file.path, "became shorter while it was read");
    to += got;
    range.begin += got;
  }
}

at::Tensor slice(const at::Tensor& window, const ByteRange& range) {
  return window.narrow(0, range.begin, range.size());
}

// Exchanges the parts of a window of `bytes` bytes. Of two ranks, the lower one sends first, because two ranks that both send
// first could wait for each other.
void exchange(const at::Tensor& window, std::int64_t bytes, const ReadingGroup& group, const Peers& peers) {
  const auto send = [&](int from, int to) {
    const ByteRange part = part_of(bytes, from, group.members());
    if (part.size() == 0) return;
    if (from == group.own) {
      peers.send(slice(window, part), group.ranks[static_cast<std::size_t>(to)]);
    } else {
      peers.receive(slice(window, part), group.ranks[static_cast<std::size_t>(from)]);
    }
  };
  for (int round = 0; round < exchange_rounds(group.members()); ++round) {
    const auto partner = partner_in(round, group.own, group.members());
    if (!partner) continue;
    const auto [lower, higher] = std::minmax(group.own, *partner);
    send(lower, higher);
    send(higher, lower);
  }
}

// Reads one checkpoint, as a member of a group.
class GroupRead {
 public:
  GroupRead(const OpenCheckpoint& checkpoint, const ReadingGroup& group, const CheckpointState& into, const Peers& peers)
      : checkpoint_(checkpoint), group_(group), into_(into), peers_(peers) {
    std::int64_t longest = 1;
    for (const auto& file : checkpoint.files) longest = std::max(longest, file.listed->facts.bytes);
    // A tensor and not an array: a message that an error interrupts keeps the memory until the process group has released it.
    window_ = at::empty({std::min(longest, kMaxWindow)}, at::kByte);
  }

  // Throws UsageError, but only after the exchange of all files.
  CheckpointState run();

 private:
  std::vector<NamedTensor> tensors_of(const std::string& role, const std::vector<NamedTensor>& destinations);
  std::vector<NamedTensor> read(const OpenCheckpoint::File& file, const std::map<std::string, at::Tensor>& destinations);
  template <typename Step>
  void guarded(const Step& step);

  const OpenCheckpoint& checkpoint_;
  const ReadingGroup& group_;
  const CheckpointState& into_;
  const Peers& peers_;
  at::Tensor window_;
  std::string problem_;  // the first error
};

// Runs a step without messages. An error must not prevent the exchange of the following bytes.
template <typename Step>
void GroupRead::guarded(const Step& step) {
  try {
    step();
  } catch (const UsageError& error) {
    if (problem_.empty()) problem_ = error.what();
  }
}

CheckpointState GroupRead::run() {
  CheckpointState state = checkpoint_.manifest.state;
  const auto destinations = tensors_by_role(into_);
  const auto loaded = tensors_by_role(state);
  for (std::size_t i = 0; i < loaded.size(); ++i) *loaded[i].second = tensors_of(loaded[i].first, *destinations[i].second);
  if (!problem_.empty()) throw UsageError(problem_);
  return state;
}

std::vector<NamedTensor> GroupRead::tensors_of(const std::string& role, const std::vector<NamedTensor>& destinations) {
  WholeTensors whole;
  std::map<std::string, at::Tensor> by_name;
  for (const NamedTensor& entry : destinations) by_name.emplace(entry.name, entry.tensor);
  for (const OpenCheckpoint::File& file : checkpoint_.files) {
    if (file.listed->role != role) continue;
    std::vector<NamedTensor> tensors = read(file, by_name);
    if (!problem_.empty()) continue;
    guarded([&] {
      try {
        whole.add(std::move(tensors), file.listed->pieces);
      } catch (const UsageError& problem) {
        throw UsageError(file.path.string() + " " + problem.what());
      }
    });
  }
  std::vector<NamedTensor> joined;
  if (!problem_.empty()) return joined;
  guarded([&] {
    try {
      joined = std::move(whole).take();
    } catch (const UsageError& problem) {
      throw UsageError(checkpoint_.path.string() + ": " + problem.what());
    }
  });
  return joined;
}

std::vector<NamedTensor> GroupRead::read(const OpenCheckpoint::File& file,
                                         const std::map<std::string, at::Tensor>& destinations) {
  const StateFile& listed = *file.listed;
  TensorStream stream(file.path, listed.facts.bytes, [&](const std::string& name) {
    const auto found = destinations.find(name);
    return found == destinations.end() || listed.pieces.contains(name) ? at::Tensor() : found->second;
  });
  char* const memory = static_cast<char*>(window_.mutable_data_ptr());
  for (std::int64_t begin = 0; begin < listed.facts.bytes; begin += kMaxWindow) {
    const std::int64_t bytes = std::min(kMaxWindow, listed.facts.bytes - begin);
    const ByteRange part = part_of(bytes, group_.own, group_.members());
    guarded([&] { read_range(file, {.begin = begin + part.begin, .end = begin + part.end}, memory + part.begin); });
    exchange(window_, bytes, group_, peers_);
    stream.add({memory, static_cast<std::size_t>(bytes)});
  }
  std::vector<NamedTensor> tensors;
  guarded([&] { tensors = stream.finish(listed.facts.xxh3_128); });
  return tensors;
}

}  // namespace

CheckpointRead read_checkpoint(const std::optional<fs::path>& path, const CheckpointState& into, const Peers& peers) {
  CheckpointRead result;
  std::unique_ptr<const OpenCheckpoint> checkpoint;
  std::int64_t key = 0;
  try {
    if (path) checkpoint = open_checkpoint(*path);
  } catch (const UsageError& problem) {
    result.problem = problem.what();
  }
  if (checkpoint) key = group_key(*checkpoint);
  const ReadingGroup group = group_of(peers.from_all(key), peers);
  if (!checkpoint) return result;
  try {
    try {
      result.saved = std::make_shared<const CheckpointState>(GroupRead(*checkpoint, group, into, peers).run());
    } catch (const UsageError&) {
      if (group.members() == 1) throw;
      result.saved = std::make_shared<const CheckpointState>(GroupRead(*checkpoint, alone(peers), into, peers).run());
    }
  } catch (const UsageError& problem) {
    result.problem = problem.what();
  }
  return result;
}

}  // namespace ddprun::trainer
