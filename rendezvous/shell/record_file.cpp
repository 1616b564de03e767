// Implementation of record_file.hpp. The record is a JSON file, which each write replaces by rename(2). A lock on the record
// itself would be lost when the file is replaced, so the lock is on a separate file.
#include "rendezvous/shell/record_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
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
#include "common/system/state_folder.hpp"

namespace ddprun::rendezvous {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kMaxAgents = 64;  // maximum number of agents of one job on one host
constexpr int kFormat = 5;
constexpr std::size_t kMaxRecordBytes = 8 << 20;  // enough for a record with the ids of 100,000 nodes
// Limits for a record of kMaxRecordBytes. In a record, the deepest level is a node id in the list of the round's nodes.
constexpr JsonLimits kRecordLimits{.depth = 8, .values = 2 << 20};
static_assert(
    kCauses == 19,
    "expected 19 values of Cause, because a record has a counter for each value: if you change Cause, increase kFormat");

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

// Throws std::out_of_range for a value outside the enum. The record is damaged in that case.
template <class Enum>
Enum enum_of(const Json& json, Enum last) {
  const auto number = json.get<std::int64_t>();
  if (number < 0 || number > static_cast<std::int64_t>(last)) throw std::out_of_range("a number is not a known value");
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
              round.step,  round.resumed_from, round.newest_checkpoint, round.lasted.count(), round.memory_requested,
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
          .memory_requested = json.at(9).get<std::uint16_t>(),
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

Json to_json(const RestoredState::Identity& node) {
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

RestoredState::Identity node_of(const Json& json) {
  RestoredState::Identity node;
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

}  // namespace

std::uint64_t next_incarnation(const RestoredState& before, std::int64_t realtime_ns) {
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
  for (int number = 0; number < kMaxAgents;) {
    fs::path file = folder / (number == 0 ? name : name + "-" + std::to_string(number));
    Descriptor lock(::open(lock_of(file).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    const Previous before = lock.get() < 0 ? Previous::kAgent : is_new ? Previous::kNewFolder : Previous::kNothing;
    if (lock.get() < 0) lock = Descriptor(::open(lock_of(file).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (lock.get() < 0) return fail(std::generic_category().message(errno));
    const int refused = ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    // The previous holder of the lock may have removed the file between our open() and our flock(). In this case our lock is
    // on a deleted file and has no effect.
    if (refused == 0 && is_same_file(lock.get(), lock_of(file))) {
      return RecordFile(std::move(file), std::move(lock), before);
    }
    if (refused != 0 && refused != EWOULDBLOCK && refused != EINTR) {  // the file system does not support locks
      if (before != Previous::kAgent) fs::remove(lock_of(file), error);
      return fail("its files cannot be locked: " + std::generic_category().message(refused));
    }
    if (refused == EWOULDBLOCK) ++number;
  }
  return fail(std::to_string(kMaxAgents) + " agents of this job already use it");
}

RecordFile::~RecordFile() {
  std::error_code ignored;
  const bool has_nothing_to_remember = lock_.get() >= 0 && !lost_ && !fs::exists(file_, ignored);
  if (has_nothing_to_remember) fs::remove(lock_file_, ignored);
}

// Renames the damaged file, so that users can examine it. An older renamed file is overwritten.
void RecordFile::set_aside(const std::string& reason) {
  const std::string aside = file_.string() + ".damaged";
  const bool moved = ::rename(file_.c_str(), aside.c_str()) == 0;
  // limits the length of the reason in the message, because the reason may quote the file
  constexpr std::size_t kMaxReasonBytes = 100;
  complaint_ = "the rendezvous record of this node in " + file_.string() + " is damaged (" +
               printable(reason.substr(0, kMaxReasonBytes)) + "): this node starts without its record" +
               (moved ? "; it is kept as " + aside : "");
}

void RecordFile::keep_for_newer_build(int format) {
  complaint_ = "the rendezvous record of this node in " + file_.string() + " was written by a newer ddprun (format " +
               std::to_string(format) + ", this one supports " + std::to_string(kFormat) +
               "): the file is kept, and this node starts without its record. Install the same ddprun on every node";
  file_ += ".format-" + std::to_string(kFormat);
}

RestoredState RecordFile::read() {
  RestoredState restored{.self = {},
                         .job_elsewhere = previous_ == Previous::kAgent,
                         .addresses = {},
                         .had_storage = previous_ != Previous::kNewFolder};
  if (::access(file_.c_str(), R_OK) != 0) return restored;
  restored.job_elsewhere = true;
  // If the folder is not writable, an earlier process may have made promises (votes) that the file does not contain. So the
  // file is not used.
  if (::access(file_.parent_path().c_str(), W_OK | X_OK) != 0) return restored;
  try {
    const Json json = parse_json_within(read_bounded(file_, kMaxRecordBytes, "the record of a node"), kRecordLimits);
    const auto format = json.at("format").get<int>();
    if (format > kFormat) {
      keep_for_newer_build(format);
      return restored;
    }
    if (format != kFormat) return restored;
    RestoredState::Identity self = node_of(json);
    const bool knows_job = self.record.knows_round() || self.record.job_elsewhere;
    restored.job_elsewhere = knows_job;
    restored.had_storage = !self.record.place_is_new;
    if (json.at("boot") == boot_id()) {
      restored.self = std::move(self);
    } else if (knows_job) {
      restored.addresses.push_back(self.record.coordinator.address);
      for (const Successor& node : self.record.successors) restored.addresses.push_back(node.address);
    }
  } catch (const Json::exception& error) {
    set_aside(error.what());
  } catch (const std::out_of_range& error) {
    set_aside(error.what());
  } catch (const UsageError& error) {
    const std::string why = error.what(), name = file_.string();
    set_aside(why.starts_with(name) ? why.substr(name.size() + (why.substr(name.size()).starts_with(": ") ? 2 : 1)) : why);
  }
  return restored;
}

bool RecordFile::write(const RestoredState::Identity& node) {
  const std::string text = to_json(node).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  const std::string temporary = file_.string() + ".new";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool written =
      fd >= 0 && text.size() <= kMaxRecordBytes && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
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
  const fs::path state = state_folder();
  return state.empty() ? fs::path() : state / "nodes" / host_file_name();  // several hosts may share one home directory
}

}  // namespace ddprun::rendezvous
