// Implementation of logs_of_nodes.hpp.
//
// Note: each node gets one query at a time. The next query is sent only after the node's previous answer has been printed. So
// a slow reader of this command's stdout slows down the nodes' answers, and no node sends data that cannot be printed. The
// code that answers these queries is in launcher/query/cluster/log_tailer.hpp.
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
#include "launcher/output/line_splitter.hpp"
#include "launcher/query/cluster/log_protocol.hpp"
#include "launcher/query/local/job_nodes.hpp"

namespace ddprun {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

// Maximum number of nodes whose logs are followed. An agent that forwards the answers can handle this number of queries at a
// time.
constexpr std::size_t kMaxFollowed = 8;
constexpr std::chrono::seconds kLinesTimeout{12};
// Retry interval while no node answers because the job has no coordinator.
constexpr std::chrono::seconds kRediscoverInterval{1};

const json kLogsQuery{{"ask", "logs"}};

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
  LocalRanks local_ranks;
  bool here = false;  // true for the node of the agent on this machine
  // the node joined the job after this command started, so its log files are shown from their first line
  bool joined_late = false;
  bool failed = false;
  bool is_away = false;
  json cursor;                                       // read position in the node's logs; null: nothing has been shown yet
  std::map<std::pair<int, bool>, Stream> streams{};  // key: rank, and true for stderr
  std::optional<PendingQuery> question{};
};

class LogsOfNodes {
 public:
  LogsOfNodes(const RunningJob& job, const JobRequest& request) : job_(job), request_(request), follows_(request.has("-f")) {}

  bool find_first() {
    const ClusterAnswers found = query_nodes(job_, kLogsQuery, kLinesTimeout);
    if (found.answers.empty()) return false;
    take_found(found, false);
    std::ranges::sort(order_, {}, [this](const std::string& name) { return nodes_.at(name).local_ranks.first; });
    if (found.silent() > 0) write_all(STDERR_FILENO, missing_nodes_message(found));
    whole_ = found.silent() == 0 || (request_.rank && wanted() > 0);
    const bool starts = follows_ && job_.status.value("state", "") == "starting";
    if (!writes_files_) {
      throw UsageError(
          "the job has no log files: to get log files for a script, start it with --tee 3, --redirects 3 or --run-dir");
    }
    if (request_.rank && wanted() == 0 && found.silent() == 0 && !starts) {
      throw UsageError("that job has no rank " + std::to_string(*request_.rank));
    }
    if (follows_ && wanted() > kMaxFollowed) {
      throw UsageError("cannot follow more than " + std::to_string(kMaxFollowed) + " nodes at a time: select a worker " +
                       "with --rank, or only this node with --here");
    }
    return true;
  }

  bool whole() const { return whole_; }

  void show_all() {
    for (const std::string& name : order_) {
      ShownNode& node = nodes_.at(name);
      if (!is_wanted(node)) continue;
      for (bool more = true; more;) {
        const ClusterAnswers answer = query_nodes(job_, question_to(name), kLinesTimeout);
        if (answer.answers.empty()) report_problem(node, "the node has not answered");
        more = !answer.answers.empty() && take_lines(node, answer.answers.front()) && is_true(answer.answers.front(), "more");
      }
    }
    show_unfinished();
  }

  void follow() {
    const Descriptor agent(static_cast<int>(::syscall(SYS_pidfd_open, job_.agent, 0)));
    for (const std::string& name : order_) query(name);
    while (agent.get() >= 0 && !wait(agent.get())) {
      if (no_query_pending() && !discovery_ && !rediscover_at_) rediscover_at_ = steady_clock::now() + kRediscoverInterval;
    }
    // Handles answers that the agent had sent before it ended.
    for (auto& [name, node] : nodes_) {
      while (node.question && !node.question->read()) {
      }
      on_reply(name, node, false);
    }
    for (auto& [name, node] : nodes_) show_rest_from_here(node);
    show_unfinished();
  }

 private:
  // Waits until an answer arrives, and handles all answers that have arrived. Returns true if the agent has ended.
  bool wait(int agent) {
    std::vector<pollfd> ready{{agent, POLLIN, 0}, {discovery_ ? discovery_->fd() : -1, POLLIN, 0}, {STDOUT_FILENO, 0, 0}};
    std::vector<std::string> queried;
    for (const auto& [name, node] : nodes_) {
      if (!node.question) continue;
      ready.push_back({node.question->fd(), POLLIN, 0});
      queried.push_back(name);
    }
    int max_ms = -1;
    if (rediscover_at_) {
      const auto rest = std::chrono::ceil<std::chrono::milliseconds>(*rediscover_at_ - steady_clock::now());
      max_ms = static_cast<int>(std::max<std::int64_t>(0, rest.count()));
    }
    ::poll(ready.data(), ready.size(), max_ms);
    if (ready[2].revents != 0) std::exit(0);  // stdout is closed
    for (std::size_t i = 0; i < queried.size(); ++i) {
      ShownNode& node = nodes_.at(queried[i]);
      const bool failed = ready[i + 3].fd < 0;
      if ((ready[i + 3].revents != 0 && node.question->read()) || failed) on_reply(queried[i], node, true);
    }
    if (discovery_ && (ready[1].fd < 0 || (ready[1].revents != 0 && discovery_->read()))) on_discovered();
    if (rediscover_at_ && *rediscover_at_ <= steady_clock::now()) find();
    return ready[0].revents != 0;
  }

  // Handles the answer to the query that was sent to the node, and sends the next query.
  void on_reply(const std::string& name, ShownNode& node, bool query_again) {
    if (!node.question) return;
    const std::optional<std::string> text = node.question->answer();
    node.question.reset();
    const ClusterAnswers answer = text ? parse_cluster_answers(job_, text) : ClusterAnswers{};
    if (answer.answers.empty()) {  // the node has left, or the job has no coordinator
      node.is_away = true;
      if (query_again && !rediscover_at_) rediscover_at_ = steady_clock::now() + kRediscoverInterval;
      return;
    }
    const json& reply = answer.answers.front();
    const bool lines = take_lines(node, reply) && reply.contains("lines") && !reply["lines"].empty();
    if (!query_again || node.failed) return;
    if (const auto round = number_of(reply, "round"); round > round_) {
      round_ = round;
      find();  // a new round may have new nodes and may have moved ranks between nodes
    }
    if (lines || is_wanted(node)) query(name);
  }

  void find() {
    rediscover_at_.reset();
    if (!discovery_) discovery_.emplace(job_.socket, nodes_query(kLogsQuery));
  }

  void on_discovered() {
    const ClusterAnswers found = parse_cluster_answers(job_, discovery_->answer());
    discovery_.reset();
    if (found.answers.empty()) {
      rediscover_at_ = steady_clock::now() + kRediscoverInterval;
      return;
    }
    take_found(found, true);
    for (const std::string& name : order_) query(name);
  }

  void take_found(const ClusterAnswers& found, bool late) {
    for (auto& [name, node] : nodes_) node.is_away = true;
    for (std::size_t i = 0; i < found.answers.size(); ++i) {
      const json& reply = found.answers[i];
      const auto [place, is_new] = nodes_.try_emplace(found.names[i]);
      ShownNode& node = place->second;
      if (is_new) {
        order_.push_back(found.names[i]);
        node.joined_late = late;
      }
      node.is_away = false;
      node.host = text_of(reply, "host");
      node.local_ranks = {static_cast<int>(number_of(reply, "first_rank")), static_cast<int>(number_of(reply, "ranks"))};
      node.here = number_of(reply, "pid") == number_of(job_.status, "pid") && node.host == text_of(job_.status, "host");
      writes_files_ = writes_files_ || is_true(reply, "files");
      round_ = std::max(round_, number_of(reply, "round"));
    }
  }

  bool is_wanted(const ShownNode& node) const {
    if (node.failed || node.is_away) return false;
    return request_.rank ? node.local_ranks.has(*request_.rank) : node.local_ranks.count > 0 || follows_;
  }
  std::size_t wanted() const {
    return static_cast<std::size_t>(std::ranges::count_if(nodes_, [&](const auto& one) { return is_wanted(one.second); }));
  }
  bool no_query_pending() const {
    return std::ranges::none_of(nodes_, [](const auto& one) { return one.second.question.has_value(); });
  }

  json question_to(const std::string& name) const {
    const ShownNode& node = nodes_.at(name);
    json question{{"ask", "log lines"}, {"to", name}, {"stderr", request_.has("--stderr")}, {"follow", follows_}};
    if (request_.rank) question["rank"] = *request_.rank;
    if (!node.cursor.is_null()) {
      question["begun"] = node.cursor;
    } else if (const auto tail = request_.tail ? request_.tail
                                 : follows_    ? std::optional(kTailWhenFollowed)
                                               : std::nullopt;
               tail && !node.joined_late) {
      question["tail"] = *tail;
    }
    return question;
  }
  void query(const std::string& name) {
    ShownNode& node = nodes_.at(name);
    const auto queried = std::ranges::count_if(nodes_, [](const auto& one) { return one.second.question.has_value(); });
    if (node.question || !is_wanted(node) || static_cast<std::size_t>(queried) >= kMaxFollowed) return;
    node.question.emplace(job_.socket, nodes_query(question_to(name)));
  }

  void report_problem(const ShownNode& node, const std::string& what) {
    write_all(STDERR_FILENO, "ddprun logs: " + node.host + ": " + what + "\n");
    whole_ = false;
  }

  // Prints the lines in the reply of the node. Returns false if the reply contains an error instead.
  bool take_lines(ShownNode& node, const json& reply) {
    if (reply.contains("error")) {
      report_problem(node, text_of(reply, "error"));
      node.failed = true;
      return false;
    }
    if (reply.contains("begun") && parse_cursor(reply["begun"])) node.cursor = reply["begun"];
    if (reply.contains("lines")) show(node, parse_pieces(reply["lines"]));
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

  // Reads the remaining lines from files on this machine, since the job has ended and no node answers any more. These files
  // belong to the workers of this machine, or to the workers of all nodes if the run directory is shared.
  void show_rest_from_here(ShownNode& node) const {
    const auto cursor = node.cursor.is_null() ? std::nullopt : parse_cursor(node.cursor);
    const std::filesystem::path logs = job_.status.value("logs", "");
    const auto rounds = rounds_in(logs);
    if (!cursor || rounds.empty() || (!node.here && rounds.back().layout != LogLayout::kRounds)) return;
    LogRequest log_request{.rank = request_.rank, .only_errors = request_.has("--stderr"), .cursor = *cursor};
    for (bool more = true; more;) {
      const LogBytes bytes = read_logs(logs, node.here ? node.local_ranks : LocalRanks{}, log_request);
      show(node, bytes.pieces);
      more = bytes.more && !bytes.pieces.empty();
      log_request.cursor = bytes.cursor;
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
  std::optional<PendingQuery> discovery_;  // pending query for the list of nodes
  std::optional<steady_clock::time_point> rediscover_at_;
};

}  // namespace

LogsShown show_logs_of_nodes(const RunningJob& job, const JobRequest& request) {
  LogsOfNodes logs(job, request);
  if (!logs.find_first()) return LogsShown::kNone;
  request.has("-f") ? logs.follow() : logs.show_all();
  return logs.whole() ? LogsShown::kAll : LogsShown::kPart;
}

}  // namespace ddprun
