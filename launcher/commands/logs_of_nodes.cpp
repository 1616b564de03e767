// Implementation of logs_of_nodes.hpp.
//
// Note: each node gets one query at a time, and the next one after its answer was printed. So a slow reader throttles the
// nodes' answers, and no node sends data that cannot be printed. launcher/asked/log_readers.hpp is the other end.
#include "launcher/commands/logs_of_nodes.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/system/descriptor.hpp"
#include "common/system/print.hpp"
#include "common/system/write_all.hpp"
#include "launcher/asked/log_words.hpp"
#include "launcher/commands/job_nodes.hpp"
#include "launcher/output/line_splitter.hpp"

namespace ddprun {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

constexpr std::size_t kMostFollowed = 8;  // limit: the agents that forward the answers can handle this many at a time
constexpr std::chrono::seconds kLinesWithin{12};
// Retry interval while no node answers, since the job has no coordinator then.
constexpr std::chrono::seconds kFindAgainAfter{1};

const json kWhoHasLogs{{"ask", "logs"}};

bool is_true(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

// One node, and how much of its logs has been shown.
struct ShownNode {
  struct Stream {
    int round = -1;
    LineSplitter lines;
  };
  std::string host;
  OwnRanks own;
  bool here = false;     // its agent is the one of this machine
  bool is_late = false;  // it joined the job after the start of this command, so its lines are shown from the first one
  bool failed = false;
  bool is_away = false;
  json begun;                                        // null: nothing has been shown yet
  std::map<std::pair<int, bool>, Stream> streams{};  // by rank, and whether it is stderr
  std::optional<OpenQuestion> question{};
};

class LogsOfNodes {
 public:
  LogsOfNodes(const RunningJob& job, const JobRequest& request) : job_(job), request_(request), follows_(request.has("-f")) {}

  bool find_first() {
    const NodesAnswers found = ask_nodes(job_, kWhoHasLogs, kLinesWithin);
    if (found.answers.empty()) return false;
    take_found(found, false);
    std::ranges::sort(order_, {}, [this](const std::string& name) { return nodes_.at(name).own.first; });
    if (found.silent() > 0) write_all(STDERR_FILENO, about_silence(found));
    whole_ = found.silent() == 0 || (request_.rank && wanted() > 0);
    const bool starts = follows_ && job_.status.value("state", "") == "starting";
    if (!writes_files_) {
      throw UsageError("that job writes no log files: a script does with --tee 3, --redirects 3 or --run-dir");
    }
    if (request_.rank && wanted() == 0 && found.silent() == 0 && !starts) {
      throw UsageError("that job has no rank " + std::to_string(*request_.rank));
    }
    if (follows_ && wanted() > kMostFollowed) {
      throw UsageError("more than " + std::to_string(kMostFollowed) +
                       " nodes are too many to follow at a time: name a worker " + "with --rank, or this node's with --here");
    }
    return true;
  }

  bool whole() const { return whole_; }

  void show_all() {
    for (const std::string& name : order_) {
      ShownNode& node = nodes_.at(name);
      if (!is_wanted(node)) continue;
      for (bool more = true; more;) {
        const NodesAnswers answer = ask_nodes(job_, question_to(name), kLinesWithin);
        if (answer.answers.empty()) complain_of(node, "it has not answered");
        more = !answer.answers.empty() && take_lines(node, answer.answers.front()) && is_true(answer.answers.front(), "more");
      }
    }
    show_unfinished();
  }

  void follow() {
    const Descriptor agent(static_cast<int>(::syscall(SYS_pidfd_open, job_.agent, 0)));
    for (const std::string& name : order_) ask(name);
    while (agent.get() >= 0 && !wait(agent.get())) {
      if (none_is_asked() && !finding_ && !find_at_) find_at_ = steady_clock::now() + kFindAgainAfter;
    }
    // Handles answers that the agent had sent before it ended.
    for (auto& [name, node] : nodes_) {
      while (node.question && !node.question->read()) {
      }
      hear(name, node, false);
    }
    for (auto& [name, node] : nodes_) show_rest_from_here(node);
    show_unfinished();
  }

 private:
  // Waits for an answer, and handles all that have arrived. Returns true if the agent has ended.
  bool wait(int agent) {
    std::vector<pollfd> ready{{agent, POLLIN, 0}, {finding_ ? finding_->fd() : -1, POLLIN, 0}, {STDOUT_FILENO, 0, 0}};
    std::vector<std::string> asked;
    for (const auto& [name, node] : nodes_) {
      if (!node.question) continue;
      ready.push_back({node.question->fd(), POLLIN, 0});
      asked.push_back(name);
    }
    int most_ms = -1;
    if (find_at_) {
      const auto rest = std::chrono::ceil<std::chrono::milliseconds>(*find_at_ - steady_clock::now());
      most_ms = static_cast<int>(std::max<std::int64_t>(0, rest.count()));
    }
    ::poll(ready.data(), ready.size(), most_ms);
    if (ready[2].revents != 0) std::exit(0);  // stdout is closed
    for (std::size_t i = 0; i < asked.size(); ++i) {
      ShownNode& node = nodes_.at(asked[i]);
      const bool failed = ready[i + 3].fd < 0;
      if ((ready[i + 3].revents != 0 && node.question->read()) || failed) hear(asked[i], node, true);
    }
    if (finding_ && (ready[1].fd < 0 || (ready[1].revents != 0 && finding_->read()))) hear_found();
    if (find_at_ && *find_at_ <= steady_clock::now()) find();
    return ready[0].revents != 0;
  }

  // Handles the answer to the node's query, and sends the next query.
  void hear(const std::string& name, ShownNode& node, bool asks_again) {
    if (!node.question) return;
    const std::optional<std::string> text = node.question->answer();
    node.question.reset();
    const NodesAnswers answer = text ? nodes_answers_of(job_, text) : NodesAnswers{};
    if (answer.answers.empty()) {  // the node has left, or the job has no coordinator
      node.is_away = true;
      if (asks_again && !find_at_) find_at_ = steady_clock::now() + kFindAgainAfter;
      return;
    }
    const json& told = answer.answers.front();
    const bool lines = take_lines(node, told) && told.contains("lines") && !told["lines"].empty();
    if (!asks_again || node.failed) return;
    if (const auto round = number_of(told, "round"); round > round_) {
      round_ = round;
      find();  // a new round may have new nodes and may have moved ranks between nodes
    }
    if (lines || is_wanted(node)) ask(name);
  }

  void find() {
    find_at_.reset();
    if (!finding_) finding_.emplace(job_.socket, question_to_nodes(kWhoHasLogs));
  }

  void hear_found() {
    const NodesAnswers found = nodes_answers_of(job_, finding_->answer());
    finding_.reset();
    if (found.answers.empty()) {
      find_at_ = steady_clock::now() + kFindAgainAfter;
      return;
    }
    take_found(found, true);
    for (const std::string& name : order_) ask(name);
  }

  void take_found(const NodesAnswers& found, bool late) {
    for (auto& [name, node] : nodes_) node.is_away = true;
    for (std::size_t i = 0; i < found.answers.size(); ++i) {
      const json& told = found.answers[i];
      const auto [place, is_new] = nodes_.try_emplace(found.names[i]);
      ShownNode& node = place->second;
      if (is_new) {
        order_.push_back(found.names[i]);
        node.is_late = late;
      }
      node.is_away = false;
      node.host = text_of(told, "host");
      node.own = {static_cast<int>(number_of(told, "first_rank")), static_cast<int>(number_of(told, "ranks"))};
      node.here = number_of(told, "pid") == number_of(job_.status, "pid") && node.host == text_of(job_.status, "host");
      writes_files_ = writes_files_ || is_true(told, "files");
      round_ = std::max(round_, number_of(told, "round"));
    }
  }

  bool is_wanted(const ShownNode& node) const {
    if (node.failed || node.is_away) return false;
    return request_.rank ? node.own.has(*request_.rank) : node.own.count > 0 || follows_;
  }
  std::size_t wanted() const {
    return static_cast<std::size_t>(std::ranges::count_if(nodes_, [&](const auto& one) { return is_wanted(one.second); }));
  }
  bool none_is_asked() const {
    return std::ranges::none_of(nodes_, [](const auto& one) { return one.second.question.has_value(); });
  }

  json question_to(const std::string& name) const {
    const ShownNode& node = nodes_.at(name);
    json question{{"ask", "log lines"}, {"to", name}, {"stderr", request_.has("--stderr")}, {"follow", follows_}};
    if (request_.rank) question["rank"] = *request_.rank;
    if (!node.begun.is_null()) {
      question["begun"] = node.begun;
    } else if (const auto tail = request_.tail ? request_.tail
                                 : follows_    ? std::optional(kTailWhenFollowed)
                                               : std::nullopt;
               tail && !node.is_late) {
      question["tail"] = *tail;
    }
    return question;
  }
  void ask(const std::string& name) {
    ShownNode& node = nodes_.at(name);
    const auto asked = std::ranges::count_if(nodes_, [](const auto& one) { return one.second.question.has_value(); });
    if (node.question || !is_wanted(node) || static_cast<std::size_t>(asked) >= kMostFollowed) return;
    node.question.emplace(job_.socket, question_to_nodes(question_to(name)));
  }

  void complain_of(const ShownNode& node, const std::string& what) {
    write_all(STDERR_FILENO, "ddprun logs: " + node.host + ": " + what + "\n");
    whole_ = false;
  }

  // Returns false if the node cannot provide the lines.
  bool take_lines(ShownNode& node, const json& told) {
    if (told.contains("error")) {
      complain_of(node, text_of(told, "error"));
      node.failed = true;
      return false;
    }
    if (told.contains("begun") && begun_of(told["begun"])) node.begun = told["begun"];
    if (told.contains("lines")) show(node, pieces_of(told["lines"]));
    return true;
  }

  void show(ShownNode& node, const std::vector<LogPiece>& pieces) const {
    for (const LogPiece& piece : pieces) {
      ShownNode::Stream& stream = node.streams[{piece.rank, piece.error}];
      if (stream.round != piece.round) show_rest(piece.rank, stream);
      stream.round = piece.round;
      stream.lines.feed(piece.bytes, [&](std::string_view lines) { print_lines(piece.rank, lines); });
      if (stream.lines.too_long()) show_rest(piece.rank, stream);
    }
  }
  void show_rest(int rank, ShownNode::Stream& stream) const {
    if (!stream.lines.rest().empty()) print_lines(rank, stream.lines.take_rest() + "\n");
  }
  void show_unfinished() {
    for (auto& [name, node] : nodes_) {
      for (auto& [of, stream] : node.streams) show_rest(of.first, stream);
    }
  }
  void print_lines(int rank, std::string_view lines) const {
    print_while_read(request_.rank ? std::string(lines) : prefixed(lines, "[rank " + std::to_string(rank) + "] "));
  }

  // The job has ended, and no node answers any more. The remaining lines are read from files on this machine: its own, and
  // those of all nodes if the run directory is shared.
  void show_rest_from_here(ShownNode& node) const {
    const auto begun = node.begun.is_null() ? std::nullopt : begun_of(node.begun);
    const std::filesystem::path logs = job_.status.value("logs", "");
    const auto rounds = rounds_in(logs);
    if (!begun || rounds.empty() || (!node.here && rounds.back().layout != LogLayout::kRounds)) return;
    LogWish wish{.rank = request_.rank, .only_errors = request_.has("--stderr"), .begun = *begun};
    for (bool more = true; more;) {
      const LogBytes bytes = read_logs(logs, node.here ? node.own : OwnRanks{}, wish);
      show(node, bytes.pieces);
      more = bytes.more && !bytes.pieces.empty();
      wish.begun = bytes.begun;
    }
  }

  const RunningJob& job_;
  const JobRequest& request_;
  bool follows_;
  bool writes_files_ = false;
  bool whole_ = true;
  std::int64_t round_ = -1;
  std::vector<std::string> order_;  // node names in the order of display
  std::map<std::string, ShownNode> nodes_;
  std::optional<OpenQuestion> finding_;  // query for the list of nodes
  std::optional<steady_clock::time_point> find_at_;
};

}  // namespace

LogsShown show_logs_of_nodes(const RunningJob& job, const JobRequest& request) {
  LogsOfNodes logs(job, request);
  if (!logs.find_first()) return LogsShown::kNone;
  request.has("-f") ? logs.follow() : logs.show_all();
  return logs.whole() ? LogsShown::kAll : LogsShown::kPart;
}

}  // namespace ddprun
