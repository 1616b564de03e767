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
#include "common/system/descriptor.hpp"
#include "common/system/host_name.hpp"
#include "common/system/realtime.hpp"
#include "trainer/checkpoint/checkpoint_folder.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kTemporaryClaim = "..writer.tmp-";  // prefix of the temporary files of write_file_atomically()

// Returns the content of a claim file. It is unique: the time distinguishes processes with the same process id.
std::string claim_text(const WriterClaim::Generation& generation) {
  return json{{"host", host_name()},
              {"pid", ::getpid()},
              {"time_ns", realtime_ns()},
              {"term", generation.term},
              {"restart", generation.restart}}
             .dump(-1, ' ', false, json::error_handler_t::replace) +
         "\n";
}

// Returns the content of the claim file, or nullopt if the file does not exist.
std::optional<std::string> read_claim(const fs::path& file) {
  // O_NONBLOCK: open() of a pipe must not block
  const Descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (opened.get() < 0 && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  std::array<char, 1024> text{};
  ssize_t size = -1;
  if (opened.get() >= 0) {
    do {
      size = ::read(opened.get(), text.data(), text.size());
    } while (size < 0 && errno == EINTR);
  }
  if (size < 0) throw std::system_error(errno, std::generic_category(), "cannot read " + file.string());
  return std::string(text.data(), static_cast<std::size_t>(size));
}

std::int64_t number_in(const json& claim, const char* key) {
  const auto found = claim.find(key);
  return found != claim.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

// Returns the generation in the text of a claim. Returns nullopt if the claim file was written incompletely, so that its
// generation can't be read.
std::optional<WriterClaim::Generation> generation_of(const std::string& claim) {
  const json text = json::parse(claim, nullptr, /*allow_exceptions=*/false);
  if (!text.is_object()) return std::nullopt;
  return WriterClaim::Generation{.term = number_in(text, "term"), .restart = number_in(text, "restart")};
}

// Removes temporary files and folders of earlier writers. Returns a message about the files that could not be removed. The
// message is empty if all were removed.
std::string remove_leftovers(const fs::path& checkpoints_dir) {
  std::vector<fs::path> leftovers;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints_dir)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kTemporaryPrefix) || name.starts_with(kTemporaryClaim)) leftovers.push_back(entry.path());
  }
  std::string notes;
  for (const fs::path& path : leftovers) {
    const std::string reason = remove_folder(path);
    if (!reason.empty()) notes += (notes.empty() ? "" : "; ") + ("cannot remove " + path.string() + ": " + reason);
  }
  return notes;
}

// Returns true if the process has ended. `pid` must be the id of a process on this host.
bool has_ended(std::int64_t pid) {
  return pid <= 0 || (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH);
}

std::string process_status(std::int64_t pid, const std::string& host) {
  if (host != host_name()) return "it may still be running";
  return has_ended(pid) ? "it has ended" : "it is running";
}

[[noreturn]] void superseded(const fs::path& file, const std::string& claim) {
  const json other = json::parse(claim, nullptr, /*allow_exceptions=*/false);
  std::string by = "another process";
  std::string advice = "Use this run directory for only one job at a time";
  if (other.is_object() && other.contains("host") && other["host"].is_string()) {
    const std::int64_t pid = number_in(other, "pid");
    const std::string host = other["host"].get<std::string>();
    by = "process " + std::to_string(pid) + " on " + host + " (" + process_status(pid, host) + ")";
    if (host == host_name() && has_ended(pid)) advice = "Start the run again: it resumes from its newest checkpoint";
  }
  throw SupersededError(by + " took over the checkpoints of this run, as recorded in " + file.string() +
                        ": this process stops and saves no more checkpoints. " + advice);
}

constexpr const char* kClaimFile = ".writer";

}  // namespace

WriterClaim::Generation WriterClaim::next_generation(const fs::path& checkpoints_dir) {
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
    // Temporary files of a killed writer may have filled the disk. So these files are removed, and the claim is written again.
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
