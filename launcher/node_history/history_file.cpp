#include "launcher/node_history/history_file.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "common/base/error.hpp"
#include "common/bounded/bounded_file.hpp"
#include "common/bounded/json_limits.hpp"
#include "common/system/atomic_file.hpp"
#include "common/system/descriptor.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormat = 1;
constexpr std::size_t kMaxBytes = 1 << 20;  // a history with kMaxFailures entries is smaller

struct LaterFormat : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string text_of(const NodeHistory& history) {
  json failures = json::array();
  for (const NodeFailure& one : history) {
    failures.push_back({{"time_s", one.time_s}, {"host", one.host}, {"cause", one.cause}, {"run", one.run}});
  }
  return json{{"format", kFormat}, {"failures", std::move(failures)}}.dump(1, ' ', false, json::error_handler_t::replace) +
         "\n";
}

// Throws UsageError or nlohmann's exceptions if the text is damaged.
NodeHistory parse(const std::string& text) {
  const json document = parse_json_within(text, {.depth = 4, .values = 10 * kMaxFailures});
  if (document.at("format").get<int>() > kFormat) throw LaterFormat("it has a later format");
  NodeHistory history;
  for (const json& one : document.at("failures")) {
    history.push_back({.time_s = one.at("time_s").get<std::int64_t>(),
                       .host = one.at("host").get<std::string>(),
                       .cause = one.at("cause").get<std::string>(),
                       .run = one.at("run").get<std::string>()});
  }
  return history;
}

std::string problem_with(const fs::path& file, const std::string& what) {
  return "the history of node failures, " + file.string() + ", " + what;
}

// Opens and locks the file. The kernel releases the lock when the descriptor is closed, even if this process is killed.
Descriptor locked(const fs::path& file) {
  Descriptor lock(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (lock.get() < 0) throw std::system_error(errno, std::generic_category(), file.string());
  while (::flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), file.string());
  }
  return lock;
}

}  // namespace

NodeHistoryFile::Content NodeHistoryFile::read() const {
  std::error_code error;
  if (folder_.empty() || !fs::exists(file(), error)) return {};
  try {
    return {.history = parse(read_bounded(file(), kMaxBytes, "a history of node failures"))};
  } catch (const LaterFormat&) {
    return {.problem = problem_with(file(), "was written by a later version of ddprun, so the file is not read")};
  } catch (const std::exception&) {
    // The file is read again with the lock, since another process may have replaced a damaged file in the meantime.
  }
  try {
    const Descriptor lock = locked(lock_file());
    return read_locked();
  } catch (const std::exception& reason) {
    return {.problem = problem_with(file(), std::string("cannot be read: ") + reason.what())};
  }
}

// Sets a damaged file aside, and then returns an empty history. Throws LaterFormat, and std::exception if the file cannot be
// read or renamed.
NodeHistoryFile::Content NodeHistoryFile::read_locked() const {
  if (!fs::exists(file())) return {};
  const std::string text = read_bounded(file(), kMaxBytes, "a history of node failures");
  try {
    return {.history = parse(text)};
  } catch (const LaterFormat&) {
    throw;
  } catch (const std::exception&) {
    const fs::path aside = file().string() + ".damaged";
    fs::rename(file(), aside);
    return {.problem =
                problem_with(file(), "was damaged: it is kept as " + aside.filename().string() + ", and a new one starts")};
  }
}

std::string NodeHistoryFile::add(const NodeHistory& failures, std::int64_t now_s) const {
  if (folder_.empty() || failures.empty()) return "";
  try {
    fs::create_directories(folder_);
    const Descriptor lock = locked(lock_file());
    Content content = read_locked();
    write_file_atomically(file(), text_of(with_failures(std::move(content.history), failures, now_s)), 0600);
    return content.problem;
  } catch (const LaterFormat&) {
    return problem_with(file(), "was written by a later version of ddprun, so a failure of a node was not added");
  } catch (const std::exception& reason) {
    return problem_with(file(), std::string("could not be extended by a failure: ") + reason.what());
  }
}

}  // namespace ddprun
