#include "trainer/checkpoint/writer_claim.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/error.hpp"
#include "common/system/atomic_file.hpp"
#include "common/system/host_name.hpp"
#include "common/system/realtime.hpp"
#include "trainer/checkpoint/checkpoint_folder.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kHalfClaim = "..writer.tmp-";  // prefix of the temporary files of write_file_atomically()

// The text of a claim is unique: the time distinguishes processes with the same process id.
std::string claim_text(const WriterClaim::Generation& generation) {
  return json{{"host", host_name()},
              {"pid", ::getpid()},
              {"time_ns", realtime_ns()},
              {"term", generation.term},
              {"restart", generation.restart}}
             .dump(-1, ' ', false, json::error_handler_t::replace) +
         "\n";
}

// Returns nullopt if the file does not exist.
std::optional<std::string> read_claim(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // O_NONBLOCK: open() of a pipe must not block
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "cannot read " + file.string());
  std::array<char, 1024> text{};
  ssize_t size = 0;
  do {
    size = ::read(fd, text.data(), text.size());
  } while (size < 0 && errno == EINTR);
  const int reason = errno;
  ::close(fd);
  if (size < 0) throw std::system_error(reason, std::generic_category(), "cannot read " + file.string());
  return std::string(text.data(), static_cast<std::size_t>(size));
}

std::int64_t number_in(const json& claim, const char* key) {
  const auto found = claim.find(key);
  return found != claim.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

// Returns nullopt for a torn claim, from which no generation can be read.
std::optional<WriterClaim::Generation> generation_of(const std::string& claim) {
  const json text = json::parse(claim, nullptr, /*allow_exceptions=*/false);
  if (!text.is_object()) return std::nullopt;
  return WriterClaim::Generation{.term = number_in(text, "term"), .restart = number_in(text, "restart")};
}

// Returns the reasons for leftovers that could not be removed; empty if all are gone.
std::string remove_leftovers(const fs::path& checkpoints_dir) {
  std::vector<fs::path> leftovers;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints_dir)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kTemporaryPrefix) || name.starts_with(kHalfClaim)) leftovers.push_back(entry.path());
  }
  std::string notes;
  for (const fs::path& path : leftovers) {
    const std::string reason = remove_folder(path);
    if (!reason.empty()) notes += (notes.empty() ? "" : "; ") + ("cannot remove " + path.string() + ": " + reason);
  }
  return notes;
}

// `pid` is a process of this host.
bool has_ended(std::int64_t pid) {
  return pid <= 0 || (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH);
}

std::string life_of(std::int64_t pid, const std::string& host) {
  if (host != host_name()) return "another host: whether it still runs can't be told from here";
  return has_ended(pid) ? "which has ended" : "which is running";
}

[[noreturn]] void superseded(const fs::path& file, const std::string& claim) {
  const json other = json::parse(claim, nullptr, /*allow_exceptions=*/false);
  std::string by = "another process";
  std::string advice = "See that only one start at a time uses this run directory";
  if (other.is_object() && other.contains("host") && other["host"].is_string()) {
    const std::int64_t pid = number_in(other, "pid");
    const std::string host = other["host"].get<std::string>();
    by = "process " + std::to_string(pid) + " on " + host + " (" + life_of(pid, host) + ")";
    if (host == host_name() && has_ended(pid)) advice = "Start the run again: it goes on from its newest checkpoint";
  }
  throw SupersededError("this run is continued by " + by + ", which has claimed its checkpoints (" + file.string() +
                        "): this process saves no more and ends. " + advice);
}

constexpr const char* kClaimFile = ".writer";

}  // namespace

WriterClaim::Generation WriterClaim::after_the_last(const fs::path& checkpoints_dir) {
  const auto claim = read_claim(checkpoints_dir / kClaimFile);
  const auto last = claim ? generation_of(*claim) : std::nullopt;
  return {.term = last ? last->term + 1 : 1};
}

WriterClaim::WriterClaim(fs::path checkpoints_dir, Generation generation)
    : checkpoints_dir_(std::move(checkpoints_dir)),
      file_(checkpoints_dir_ / kClaimFile),
      generation_(generation),
      text_(claim_text(generation)) {}

std::string WriterClaim::take() {
  if (const auto claim = read_claim(file_)) {
    if (const auto other = generation_of(*claim); other && *other > generation_) superseded(file_, *claim);
  }
  make_durable_folder(checkpoints_dir_);
  try {
    write_file_atomically(file_, text_);
  } catch (const std::system_error& error) {
    // The leftovers of a killed writer may be what fills the disk.
    if (error.code() != std::errc::no_space_on_device) throw;
    remove_leftovers(checkpoints_dir_);
    write_file_atomically(file_, text_);
  }
  taken_ = true;
  return remove_leftovers(checkpoints_dir_);
}

void WriterClaim::check() {
  const auto claim = read_claim(file_);
  if (claim && *claim == text_) return;
  if (claim && taken_) superseded(file_, *claim);
  take();
}

void WriterClaim::check_generation() {
  const auto claim = read_claim(file_);
  if (!claim || generation_of(*claim) != generation_) take();
}

}  // namespace ddprun::trainer
