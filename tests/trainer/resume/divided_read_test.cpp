// Tests how three ranks load a checkpoint together: the bytes that they read, the memory of the tensors, and errors on one
// rank.
#include "trainer/resume/divided_read.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <functional>

#include "tests/common/temporary_folder.hpp"
#include "tests/trainer/checkpoint/sample_state.hpp"
#include "tests/trainer/parallel/ranks.hpp"

namespace {

std::atomic<bool> reads_fail = false;
std::atomic<std::int64_t> bytes_of_reads = 0;

ssize_t counted_read(int fd, void* to, size_t bytes, off_t offset) {
  if (reads_fail) return errno = EIO, -1;
  const ssize_t got = ::syscall(SYS_pread64, fd, to, bytes, offset);
  if (got > 0) bytes_of_reads += got;
  return got;
}

}  // namespace

// This program's definitions replace those of libc.
extern "C" ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
  return counted_read(fd, to, bytes, offset);
}
extern "C" ssize_t pread64(int fd, void* to, size_t bytes, off_t offset) {
  return counted_read(fd, to, bytes, offset);
}

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReadFolder = "DDPRUN_TEST_READ";
constexpr int kReaders = 3;
constexpr std::int64_t kElements = 5'000'001;  // 20 MB, more than one window

CheckpointState large_state() {
  CheckpointState state = sample_state(400);
  state.model.push_back({"large", at::arange(kElements, at::kFloat)});
  state.optimizer.push_back({"large.exp_avg", at::arange(kElements, at::kFloat).neg()});
  return state;
}

// Returns a state with the same tensors, filled with zeros.
CheckpointState empty_state() {
  CheckpointState state = large_state();
  for (auto& [role, tensors] : tensors_by_role(state)) {
    for (NamedTensor& entry : *tensors) entry.tensor = at::zeros_like(entry.tensor);
  }
  return state;
}

// In the parent, saves the state and calls `change` with its folder. In a rank, returns the rank.
std::unique_ptr<Rank> as_reader(const std::function<void(const fs::path& checkpoint)>& change = {}) {
  if (is_rank()) return join_as_rank();
  const test::TemporaryFolder folder;
  const SaveResult saved = save_checkpoint(folder.path(), large_state(), newest(3));
  if (change) change(saved.path);
  start_ranks(kReaders, {}, {{kReadFolder, saved.path.string()}}, true);
  return nullptr;
}

fs::path checkpoint_of_readers() {
  return std::getenv(kReadFolder);
}

Peers peers_of_reader(const Rank& rank) {
  return {rank.group, rank.environment.rank, kReaders, c10::kCPU};
}

std::int64_t bytes_on_disk(const fs::path& checkpoint) {
  std::int64_t bytes = 0;
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    bytes += static_cast<std::int64_t>(fs::file_size(checkpoint / file));
  }
  return bytes;
}

std::int64_t sum_over_readers(const Peers& peers, std::int64_t value) {
  std::int64_t sum = 0;
  for (const std::int64_t one : peers.from_all(value)) sum += one;
  return sum;
}

void expect_loaded(const CheckpointRead& read) {
  EXPECT_EQ(read.problem, "");
  ASSERT_TRUE(read.saved);
  EXPECT_TRUE(same_state(*read.saved, large_state()));
}

TEST(DividedRead, TheRanksReadEachByteOnceIntoTheirState) {
  const auto rank = as_reader();
  if (!rank) return;
  const Peers peers = peers_of_reader(*rank);
  const CheckpointState into = empty_state();
  const CheckpointRead read = read_checkpoint(checkpoint_of_readers(), into, peers);
  expect_loaded(read);
  EXPECT_EQ(sum_over_readers(peers, bytes_of_reads), bytes_on_disk(checkpoint_of_readers()));
  EXPECT_TRUE(same_tensors(into.model, large_state().model));  // so the loaded tensors share memory with the state
  EXPECT_TRUE(same_tensors(into.optimizer, large_state().optimizer));
}

TEST(DividedRead, ARankWithoutThePathReadsNothing) {
  const auto rank = as_reader();
  if (!rank) return;
  const Peers peers = peers_of_reader(*rank);
  const bool takes_part = peers.rank() != 1;
  const CheckpointRead read = read_checkpoint(takes_part ? std::optional(checkpoint_of_readers()) : std::nullopt, {}, peers);
  EXPECT_EQ(sum_over_readers(peers, bytes_of_reads), bytes_on_disk(checkpoint_of_readers()));
  if (takes_part) expect_loaded(read);
  EXPECT_EQ(read.saved != nullptr, takes_part);
}

// Two folders with the same content, as on two nodes without a shared disk.
TEST(DividedRead, RanksWithOtherFoldersReadTheirOwn) {
  const auto rank = as_reader([](const fs::path& checkpoint) {
    fs::create_directory(checkpoint.parent_path() / "other");
    fs::copy(checkpoint, checkpoint.parent_path() / "other" / checkpoint.filename(), fs::copy_options::recursive);
  });
  if (!rank) return;
  const Peers peers = peers_of_reader(*rank);
  const fs::path checkpoint = checkpoint_of_readers();
  const fs::path own = peers.rank() == 2 ? checkpoint.parent_path() / "other" / checkpoint.filename() : checkpoint;
  expect_loaded(read_checkpoint(own, {}, peers));
  EXPECT_EQ(sum_over_readers(peers, bytes_of_reads), 2 * bytes_on_disk(checkpoint));
}

TEST(DividedRead, DamageIsReportedOnAllRanksWithTheFile) {
  const auto rank = as_reader([](const fs::path& checkpoint) {
    std::fstream file(checkpoint / "optimizer.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-5, std::ios::end);
    file.put('\x55');
  });
  if (!rank) return;
  const Peers peers = peers_of_reader(*rank);
  const CheckpointRead read = read_checkpoint(checkpoint_of_readers(), empty_state(), peers);
  EXPECT_FALSE(read.saved);
  EXPECT_NE(read.problem.find("optimizer.safetensors has checksum"), std::string::npos) << read.problem;
}

// The other ranks have exchanged bytes with the failing rank. They must not report a checkpoint that they can read as damaged.
TEST(DividedRead, ARankThatCannotReadDoesNotStopTheOthers) {
  const auto rank = as_reader();
  if (!rank) return;
  const Peers peers = peers_of_reader(*rank);
  reads_fail = peers.rank() == 1;
  const CheckpointRead read = read_checkpoint(checkpoint_of_readers(), empty_state(), peers);
  if (peers.rank() != 1) return expect_loaded(read);
  EXPECT_FALSE(read.saved);
  EXPECT_NE(read.problem.find("model.safetensors: cannot be read"), std::string::npos) << read.problem;
}

TEST(DividedRead, AMissingFileIsReportedBeforeTheExchange) {
  const auto rank = as_reader([](const fs::path& checkpoint) { fs::remove(checkpoint / "model.safetensors"); });
  if (!rank) return;
  const Peers peers = peers_of_reader(*rank);
  const CheckpointRead read = read_checkpoint(checkpoint_of_readers(), {}, peers);
  EXPECT_NE(read.problem.find("model.safetensors is missing"), std::string::npos) << read.problem;
  EXPECT_EQ(sum_over_readers(peers, bytes_of_reads), 0);
}

}  // namespace
}  // namespace ddprun::trainer
