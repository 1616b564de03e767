// Implementation of record_file.hpp: JSON that is replaced by rename(2). The lock has a separate file, since a rename would
// lose it.
#include "rendezvous/shell/record_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/bounded/bounded_file.hpp"
#include "common/bounded/json_limits.hpp"
#include "common/failure/restart_history.hpp"
#include "common/system/host_name.hpp"

namespace ddprun::rendezvous {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kMostAgents = 64;  // on one host, in one job
constexpr int kFormat = 5;
constexpr std::size_t kMostOfRecord = 8 << 20;  // bytes: a record with the names of 100,000 nodes
// For the same record. Its deepest part is the name of a node in the roster's list.
constexpr JsonLimits kLimitsOfRecord{.depth = 8, .values = 2 << 20};
static_assert(kCauses == 19, "a record counts by cause, so a new cause needs a new kFormat");

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

// Throws std::out_of_range for a value outside the enum, which means a damaged record.
template <class Enum>
Enum enum_of(const Json& json, Enum last) {
  const auto number = json.get<std::int64_t>();
  if (number < 0 || number > static_cast<std::int64_t>(last))
    throw std::out_of_range("a number is not one of the known values");
  return static_cast<Enum>(number);
}

Json to_json(const Config& config) {
  return Json{config.id.term, config.id.round, config.born, config.nodes, config.rank, config.arbiter, config.founder};
}
Config config_of(const Json& json) {
  return {.id = {json.at(0).get<std::uint64_t>(), json.at(1).get<std::int64_t>()},
          .born = json.at(2).get<std::uint64_t>(),
          .nodes = json.at(3).get<std::int32_t>(),
          .rank = json.at(4).get<std::int32_t>(),
          .arbiter = enum_of(json.at(5), Arbiter::kEtcd),
          .founder = json.at(6).get<NodeId>()};
}

Json to_json(const Successor& node) {
  return Json{node.group_rank, node.node, node.address.host, node.address.port};
}
Successor successor_of(const Json& json) {
  return {.group_rank = json.at(0).get<std::int32_t>(),
          .node = json.at(1).get<NodeId>(),
          .address = {json.at(2).get<std::string>(), json.at(3).get<std::uint16_t>()}};
}

Json to_json(const FailedRound& round) {
  return Json{round.cause, round.rank,         round.status.code,       round.status.signal,  round.status.core_dumped,
              round.step,  round.resumed_from, round.newest_checkpoint, round.lasted.count(), round.memory_asked,
              round.shrink};
}
FailedRound failed_round_of(const Json& json) {
  return {.cause = enum_of(json.at(0), kLastCause),
          .rank = json.at(1).get<std::int32_t>(),
          .status = {.code = json.at(2).get<int>(), .signal = json.at(3).get<int>(), .core_dumped = json.at(4).get<bool>()},
          .step = json.at(5).get<std::int64_t>(),
          .resumed_from = json.at(6).get<std::int64_t>(),
          .newest_checkpoint = json.at(7).get<std::int64_t>(),
          .lasted = std::chrono::nanoseconds(json.at(8).get<std::int64_t>()),
          .memory_asked = json.at(9).get<std::uint16_t>(),
          .shrink = enum_of(json.at(10), channel::Shrink::kNothingLeft)};
}

Json to_json(const RestartHistory& history) {
  Json rounds = Json::array();
  for (const FailedRound& round : history.rounds) rounds.push_back(to_json(round));
  return Json{{"used", history.used}, {"by_cause", history.by_cause}, {"rounds", rounds}};
}
RestartHistory history_of(const Json& json) {
  RestartHistory history;
  history.used = json.at("used").get<std::int32_t>();
  history.by_cause = json.at("by_cause").get<decltype(history.by_cause)>();
  for (const Json& round : json.at("rounds")) history.rounds.push_back(failed_round_of(round));
  return history;
}

Json to_json(const Memory::Self& node) {
  const PersistentState& state = node.record.state;
  Json successors = Json::array();
  for (const Successor& one : node.record.successors) successors.push_back(to_json(one));
  return Json{{"format", kFormat},
              {"boot", boot_id()},
              {"node", node.id},
              {"incarnation", node.incarnation},
              {"promised_term", state.promised_term},
              {"current", to_json(state.current)},
              {"previous", to_json(state.previous)},
              {"restart_count", state.budget.restart_count},
              {"history", to_json(state.budget.history)},
              {"first_number", state.budget.first_number},
              {"job_elsewhere", node.record.job_elsewhere},
              {"place_is_new", node.record.place_is_new},
              {"coordinator", to_json(node.record.coordinator)},
              {"successors", successors},
              {"roster", Json{{"term", node.record.roster.origin.term},
                              {"round", node.record.roster.origin.round},
                              {"nodes", node.record.roster.nodes}}}};
}

Memory::Self node_of(const Json& json) {
  Memory::Self node;
  node.id = json.at("node").get<NodeId>();
  node.incarnation = json.at("incarnation").get<std::uint64_t>();
  PersistentState& state = node.record.state;
  state.promised_term = json.at("promised_term").get<std::uint64_t>();
  state.current = config_of(json.at("current"));
  state.previous = config_of(json.at("previous"));
  state.budget.restart_count = json.at("restart_count").get<std::int32_t>();
  state.budget.history = history_of(json.at("history"));
  state.budget.first_number = json.at("first_number").get<std::int32_t>();
  node.record.job_elsewhere = json.at("job_elsewhere").get<bool>();
  node.record.place_is_new = json.value("place_is_new", false);
  node.record.coordinator = successor_of(json.at("coordinator"));
  for (const Json& one : json.at("successors")) node.record.successors.push_back(successor_of(one));
  const Json& roster = json.at("roster");
  node.record.roster = {.origin = {roster.at("term").get<std::uint64_t>(), roster.at("round").get<std::int64_t>()},
                        .nodes = roster.at("nodes").get<std::vector<NodeId>>()};
  return node;
}

fs::path lock_of(const fs::path& file) {
  return file.string() + ".lock";
}

// The previous holder of the lock may have removed the file between our open() and our flock().
bool is_still_at(int opened, const fs::path& path) {
  struct stat ours {
  }, there{};
  return ::fstat(opened, &ours) == 0 && ::stat(path.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
         ours.st_dev == there.st_dev;
}

}  // namespace

std::uint64_t next_incarnation(const Memory& before, std::int64_t realtime_ns) {
  const auto now = static_cast<std::uint64_t>(realtime_ns);
  return before.self ? std::max(now, before.self->incarnation + 1) : now;
}

std::optional<RecordFile> RecordFile::claim(const fs::path& folder, const std::string& name, std::string* why) {
  const auto fail = [&](const std::string& reason) {
    if (why != nullptr) *why = folder.string() + ": " + reason;
    return std::nullopt;
  };
  if (folder.empty()) return std::nullopt;
  std::error_code error;
  const bool is_new = fs::create_directories(folder, error);
  if (error) return fail(error.message());
  fs::permissions(folder, fs::perms::owner_all, error);
  for (int number = 0; number < kMostAgents;) {
    fs::path file = folder / (number == 0 ? name : name + "-" + std::to_string(number));
    int lock = ::open(lock_of(file).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    const Before before = lock < 0 ? Before::kAnAgent : is_new ? Before::kNewFolder : Before::kNothing;
    if (lock < 0) lock = ::open(lock_of(file).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0) return fail(std::generic_category().message(errno));
    const int refused = ::flock(lock, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    if (refused == 0 && is_still_at(lock, lock_of(file))) return RecordFile(std::move(file), lock, before);
    ::close(lock);
    if (refused != 0 && refused != EWOULDBLOCK && refused != EINTR) {  // a file system without locks
      if (before != Before::kAnAgent) fs::remove(lock_of(file), error);
      return fail("its files cannot be locked: " + std::generic_category().message(refused));
    }
    if (refused == EWOULDBLOCK) ++number;
  }
  return fail(std::to_string(kMostAgents) + " agents of this job use it already");
}

RecordFile::RecordFile(RecordFile&& other) noexcept
    : file_(std::move(other.file_)),
      lock_file_(std::move(other.lock_file_)),
      complaint_(std::move(other.complaint_)),
      error_(other.error_),
      lock_(std::exchange(other.lock_, -1)),
      before_(other.before_),
      lost_(other.lost_) {}

RecordFile& RecordFile::operator=(RecordFile&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(lock_file_, other.lock_file_);
  std::swap(complaint_, other.complaint_);
  std::swap(error_, other.error_);
  std::swap(lock_, other.lock_);
  std::swap(before_, other.before_);
  std::swap(lost_, other.lost_);
  return *this;
}

RecordFile::~RecordFile() {
  if (lock_ < 0) return;
  std::error_code ignored;
  if (!lost_ && !fs::exists(file_, ignored))
    fs::remove(lock_file_, ignored);  // there is nothing to remember, so the lock file is removed too
  ::close(lock_);
}

// The damaged file is kept as evidence. An older file of that name is replaced.
void RecordFile::set_aside(const std::string& reason) {
  const std::string aside = file_.string() + ".damaged";
  const bool moved = ::rename(file_.c_str(), aside.c_str()) == 0;
  constexpr std::size_t kMostOfReason = 100;  // the reason may quote the file
  complaint_ = "the record of this node in " + file_.string() + " is damaged (" + printable(reason.substr(0, kMostOfReason)) +
               "): this node starts without it, as if it were lost" + (moved ? "; it is kept as " + aside : "");
}

void RecordFile::leave_to_newer_build(int format) {
  complaint_ = "the record of this node in " + file_.string() + " was written by a newer ddprun (format " +
               std::to_string(format) + ", this one knows " + std::to_string(kFormat) +
               "): it stays, and this node starts without it. Install the same ddprun on every node";
  file_ += ".format-" + std::to_string(kFormat);
}

Memory RecordFile::read() {
  Memory memory{.self = {}, .job_elsewhere = before_ == Before::kAnAgent, .places = {}, .kept = before_ != Before::kNewFolder};
  if (::access(file_.c_str(), R_OK) != 0) return memory;
  memory.job_elsewhere = true;
  // If the folder is not writable, the file may be older than this node's newest promises.
  if (::access(file_.parent_path().c_str(), W_OK | X_OK) != 0) return memory;
  try {
    const Json json = parse_json_within(read_bounded(file_, kMostOfRecord, "the record of a node"), kLimitsOfRecord);
    const auto format = json.at("format").get<int>();
    if (format > kFormat) {
      leave_to_newer_build(format);
      return memory;
    }
    if (format != kFormat) return memory;
    Memory::Self self = node_of(json);
    const bool knows_job = self.record.knows_round() || self.record.job_elsewhere;
    memory.job_elsewhere = knows_job;
    memory.kept = !self.record.place_is_new;
    if (json.at("boot") == boot_id()) {
      memory.self = std::move(self);
    } else if (knows_job) {
      memory.places.push_back(self.record.coordinator.address);
      for (const Successor& node : self.record.successors) memory.places.push_back(node.address);
    }
  } catch (const Json::exception& error) {
    set_aside(error.what());
  } catch (const std::out_of_range& error) {
    set_aside(error.what());
  } catch (const UsageError& error) {
    const std::string why = error.what(), name = file_.string();
    set_aside(why.starts_with(name) ? why.substr(name.size() + (why.substr(name.size()).starts_with(": ") ? 2 : 1)) : why);
  }
  return memory;
}

bool RecordFile::write(const Memory::Self& node) {
  const std::string text = to_json(node).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::string temporary = file_.string() + ".new";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool written =
      fd >= 0 && text.size() <= kMostOfRecord && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool closed = fd >= 0 && ::close(fd) == 0;
  lost_ = !written || !closed || ::rename(temporary.c_str(), file_.c_str()) != 0;
  if (lost_) {
    error_ = errno;
    ::unlink(temporary.c_str());
    ::unlink(file_.c_str());
  }
  return !lost_;
}

void RecordFile::forget() {
  lost_ = false;
  std::error_code ignored;
  fs::remove(file_, ignored);
}

fs::path record_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value == nullptr ? "" : value);
  };
  fs::path state = variable("XDG_STATE_HOME");
  if (!state.is_absolute()) {
    const fs::path home = variable("HOME");
    if (!home.is_absolute()) return {};
    state = home / ".local" / "state";
  }
  return state / "ddprun" / "nodes" / host_file_name();  // several hosts may share one home
}

}  // namespace ddprun::rendezvous
