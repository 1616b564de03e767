// Implementation of join_job.hpp. A joining node does not know the job's run id yet. It therefore connects with the fixed id
// kJoinRunId and the job's token, and the coordinator's node answers with job_text().
#include "launcher/network/join_job.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/config/parse_config.hpp"
#include "common/system/atomic_file.hpp"
#include "common/system/unique_folder.hpp"
#include "common/system/write_all.hpp"
#include "launcher/machine/local_address.hpp"
#include "launcher/options/host_and_port.hpp"
#include "launcher/options/options_table.hpp"
#include "launcher/options/parse_number.hpp"
#include "rendezvous/identity/token_search.hpp"
#include "rendezvous/shell/node_shell.hpp"
#include "rendezvous/transport/transport.hpp"
#include "rendezvous/wire/codec.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr const char* kJoinUsage = "usage: ddprun join HOST:PORT [--token-file FILE] [options of this node]";
constexpr int kFormat = 1;
constexpr milliseconds kAttempt{4000};
constexpr milliseconds kJoinTimeout{600'000};

// Options of the coordinator that are not sent to a joining node. Some concern only the coordinator's own node. Others are sent
// in a different form, such as the restart policy, whose text is sent.
constexpr std::array<std::string_view, 21> kPerNodeOptions{
    "restart-policy", "interface",        "node-rank", "local-addr", "token-file",   "run-dir", "json",     "quiet",
    "verbose",        "dry-run",          "help",      "version",    "fresh",        "log-dir", "help-all", "print-man",
    "torchrun-help",  "print-completion", "role",      "standalone", "rdzv-endpoint"};

void print_message(const std::string& text) {
  write_all(STDERR_FILENO, "ddprun: " + text + "\n");
}

rendezvous::Address parse_endpoint(const std::string& text) {
  const auto there = parse_host_and_port(text);
  if (const auto form = with_brackets(text); !there && form) {
    throw UsageError("join: expected an IPv6 address in brackets before the port, " + *form + ", but got '" + text + "'; " +
                     kJoinUsage);
  }
  if (!there || there->host.empty() || there->port.value_or(0) < 1) {
    throw UsageError("join: expected HOST:PORT, as the coordinator's console shows it, but got '" + text + "'; " + kJoinUsage);
  }
  return {there->host, static_cast<std::uint16_t>(*there->port)};
}

[[noreturn]] void give_up(const ConnectFailure& failure) {
  if (failure.kind == ConnectFailure::Kind::kWrongToken) throw TokenError(failure.message);
  if (failure.kind == ConnectFailure::Kind::kBadLocalAddress) throw UsageError(failure.message);
  throw Error(ExitCode::kPeersMissing, failure.message);
}

// Sends one request to the coordinator and returns the answer, after which the connection is closed. Retries while the
// coordinator cannot be reached, for up to kJoinTimeout.
std::string fetch(const rendezvous::Address& endpoint, const Token& token, const std::string& local_address) {
  const auto begin = std::chrono::steady_clock::now();
  bool printed = false;
  for (;;) {
    boost::asio::io_context io(1);
    TransportLimits limits;
    limits.frame_bytes = rendezvous::kMaxFrameBytes;
    Transport transport(io,
                        {.token = token.text(),
                         .run_id = rendezvous::kJoinRunId,
                         .protocol_version = static_cast<std::uint8_t>(rendezvous::kProtocolVersion),
                         .instance = new_instance_id()},
                        limits);
    ConnectOptions options;
    options.host = endpoint.host;
    options.port = endpoint.port;
    options.local_address = local_address;
    options.patience = options.attempt = kAttempt;
    ConnectResult result;
    std::string answer;
    boost::asio::co_spawn(io, transport.connect(std::move(options)),
                          [&](const std::exception_ptr& error, const ConnectResult& connected) {
                            if (error) std::rethrow_exception(error);
                            result = connected;
                            if (!result.connection) return;
                            Connection::Handlers handlers;
                            handlers.on_frame = [&](std::string_view frame) {
                              answer = frame;
                              result.connection->finish();
                            };
                            handlers.on_closed = [&](const Closed&) { io.stop(); };
                            result.connection->start(std::move(handlers));
                          });
    io.run();
    if (!answer.empty()) return answer;
    using Kind = ConnectFailure::Kind;
    if (result.connection) {
      result.failure = {Kind::kLost, "the agent at " + endpoint.host + " ended before it sent the command to run"};
    }
    const bool may_appear = result.failure.kind == Kind::kRefused || result.failure.kind == Kind::kUnreachable ||
                            result.failure.kind == Kind::kLost;
    if (!may_appear || std::chrono::steady_clock::now() - begin > kJoinTimeout) give_up(result.failure);
    if (!std::exchange(printed, true)) print_message(result.failure.message + ". Still trying");
  }
}

// Adds the option as a user types it. A flag is added at most twice, since further repetitions have no effect.
void add_option(std::vector<std::string>& words, const OptionSpec& option, const Setting& setting) {
  const std::string name = "--" + std::string(option.name);
  if (!option.is_flag()) return words.push_back(name + "=" + setting.value);
  words.insert(words.end(), static_cast<std::size_t>(std::clamp(std::atoi(setting.value.c_str()), 0, 2)), name);
}

std::vector<std::string> shared_options(const Settings& settings) {
  std::vector<std::string> words;
  for (const OptionSpec& option : option_table()) {
    if (!settings.given(option.name) ||
        std::find(kPerNodeOptions.begin(), kPerNodeOptions.end(), option.name) != kPerNodeOptions.end())
      continue;
    add_option(words, option, *settings.find(option.name));
  }
  return words;
}

// Writes a file that the coordinator sent, so that this node's ddprun can read it. Returns its path.
fs::path write_file(JoinedJob& job, const char* name, const std::string& text) {
  if (job.files.empty()) job.files = make_temporary_folder("ddprun-join-");
  write_file_atomically(job.files / name, text);
  return job.files / name;
}

// Returns the first argument that is not valid UTF-8, which JSON cannot represent. Replacement characters would make the
// joining node run a different command, so such a job cannot be joined with `ddprun join`.
std::optional<std::string> not_utf8(const Arguments& arguments, const fs::path& cwd) {
  std::vector<std::string> words = shared_options(arguments.settings);
  words.insert(words.end(), arguments.positional.begin(), arguments.positional.end());
  words.push_back(cwd.string());
  for (const std::string& word : words) {
    try {
      Json(word).dump();
    } catch (const Json::exception&) {
      return printable(word);
    }
  }
  return std::nullopt;
}

std::string shown(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace

std::string job_text(const Arguments& arguments, const Plan& plan, const fs::path& cwd) {
  Json json{{"format", kFormat},
            {"run_id", plan.run_id},
            {"options", shared_options(arguments.settings)},
            {"positional", arguments.positional},
            {"folder", cwd.string()},
            {"run_dir", plan.run_dir.string()}};
  if (plan.config) json["config"] = to_json_text(*plan.config);
  if (!plan.restart_policy_text.empty()) json["restart_policy"] = plan.restart_policy_text;
  if (const auto word = not_utf8(arguments, cwd)) json["refused"] = "'" + *word + "' is not valid UTF-8";
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

JoinedJob fetch_job(std::span<const std::string> args, const Environment& environment) {
  std::vector<std::string> words(args.begin(), args.end());
  if (!words.empty() && !words.front().starts_with("-")) std::rotate(words.begin(), words.begin() + 1, words.end());
  const Arguments local_arguments = parse_arguments(words, environment);
  if (local_arguments.positional.size() != 1) throw UsageError(kJoinUsage);
  const rendezvous::Address endpoint = parse_endpoint(local_arguments.positional.front());

  const std::string local = local_arguments.settings.text("local-addr");
  FoundToken found = find_token({.token_file = local_arguments.settings.text("token-file"),
                                 .variable = take_token_variable(),
                                 .run_dir = local_arguments.settings.text("run-dir"),
                                 .user_file = token_file_of_user(),
                                 .node = TokenSources::Node::kOther});
  const std::string answer = fetch(endpoint, found.token, local.empty() ? local : numeric_address(local));

  JoinedJob job{.arguments = local_arguments, .coordinator = endpoint};
  try {
    const Json json = Json::parse(answer);
    if (json.at("format") != kFormat)
      throw UsageError("the job at " + local_arguments.positional.front() +
                       " runs another version of ddprun: install the same version on both nodes");
    if (json.contains("refused")) {
      throw UsageError("the job at " + local_arguments.positional.front() +
                       " cannot be joined with ddprun join: in its command, " +
                       printable(json.at("refused").get<std::string>()) +
                       ". Run the full command of that node here, with the same --rdzv-endpoint or --master-addr");
    }
    job.run_id = json.at("run_id").get<std::string>();
    job.folder = json.at("folder").get<std::string>();
    std::vector<std::string> options = json.at("options").get<std::vector<std::string>>();
    std::vector<std::string> positional = json.at("positional").get<std::vector<std::string>>();
    // The text is escaped: with control characters in it, the coordinator could hide on this terminal which command is run
    // here.
    print_message("joining the job '" + printable(job.run_id) + "'; the node at " + local_arguments.positional.front() +
                  " sent this command: " + printable(shown(positional)));
    if (json.contains("config")) positional = {write_file(job, "config.json", json.at("config").get<std::string>()).string()};
    if (json.contains("restart_policy")) {
      options.push_back("--restart-policy=" +
                        write_file(job, "restart-policy.json", json.at("restart_policy").get<std::string>()).string());
    }
    if (const auto run_dir = json.at("run_dir").get<std::string>(); !run_dir.empty()) options.push_back("--run-dir=" + run_dir);
    // The options that the user typed on this node follow last, so they take precedence.
    for (const OptionSpec& option : option_table()) {
      if (!local_arguments.settings.given(option.name) || option.name == "token-file") continue;
      add_option(options, option, *local_arguments.settings.find(option.name));
    }
    options.insert(options.end(), positional.begin(), positional.end());
    job.arguments = parse_arguments(options, [](std::string_view) { return std::optional<std::string>(); });
  } catch (const Json::exception&) {
    throw UsageError("the node at " + local_arguments.positional.front() +
                     " sent an unreadable job description: install the same version of ddprun on both nodes");
  }
  job.token = std::string(found.token.text());
  return job;
}

void follow(Plan& plan, const JoinedJob& job) {
  plan.rendezvous.joins = true;
  plan.rendezvous.host = job.coordinator.host;
  plan.rendezvous.port = job.coordinator.port;
  plan.rendezvous.node_rank.reset();
  plan.rendezvous.is_host = false;
  plan.run_id = job.run_id;
  plan.token_file.clear();
}

}  // namespace ddprun
