// The messages between `ddprun --hosts` and its supervisors on the other hosts, over the standard input and output of ssh.
//
// A message is a letter, the size of its content in decimal, a line end, and the content. The output of the agents is
// forwarded in messages too. So it may contain any bytes, and stdout, stderr and the exit code of an agent stay apart. The
// command, its variables and the token travel in a message to the supervisor, not in the command line of ssh. So no shell
// reads them, and other users of both machines cannot see them.
//
// The startup files of a shell may print text before the supervisor starts. A reader therefore skips all bytes before the
// greeting line of the supervisor. The code is pure: no I/O, no clock.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

enum class MessageKind : char {
  // to the supervisor
  kOpen = 'i',    // the fields of OpenRequest
  kRun = 'r',     // the fields of RunRequest
  kSignal = 's',  // the number of a signal for the agent
  kPing = 'p',    // sent regularly, to show that the connection works
  kQuit = 'q',    // the result has arrived, so the supervisor can exit
  // from the supervisor
  kReady = 'h',     // this host waits for kRun; the first host also sends its address and a free port
  kAttached = 'a',  // the agent of an earlier connection still runs
  kUnknown = 'u',   // this host has no agent of this job
  kRefused = 'f',   // why the agent cannot be started here
  kOutput = 'o',    // bytes that the agent wrote to stdout
  kErrors = 'e',    // bytes that the agent wrote to stderr
  kEnded = 'x',     // "code" or "signal", and the number
};

struct HostMessage {
  MessageKind kind;
  std::string content;
};

inline constexpr std::string_view kHostGreeting = "\nddprun agent over ssh\n";
inline constexpr std::size_t kMaxMessageBytes = 8 << 20;

std::string encode(MessageKind kind, std::string_view content);

// The fields may contain any byte except the zero byte, which cannot occur in arguments and variables.
std::string join_fields(const std::vector<std::string>& fields);
std::vector<std::string> split_fields(std::string_view content);

// The first message of a connection.
struct OpenRequest {
  enum class Mode { kStart, kAttach };
  std::string version;
  Mode mode = Mode::kStart;
  std::string id;         // names this agent on its host: hexadecimal digits and dashes
  std::string folder;     // the working directory
  std::string interface;  // the value of --interface; may be empty
  int lost_timeout_ms = 0;
  bool is_first = false;  // true for the first of several hosts, whose supervisor also sends an address and a free port
};
std::string to_content(const OpenRequest& request);
// Returns nullopt if the content is not valid.
std::optional<OpenRequest> parse_open_request(std::string_view content);

struct RunRequest {
  std::string token;                   // may be empty
  std::vector<std::string> variables;  // "NAME=value"
  std::vector<std::string> words;      // the arguments of ddprun
};
std::string to_content(const RunRequest& request);
std::optional<RunRequest> parse_run_request(std::string_view content);

// Splits the received bytes into messages. Wipes the bytes of each message, since one of them contains the token.
class MessageReader {
 public:
  enum class Start { kAtFirstByte, kAfterGreeting };
  explicit MessageReader(Start start) : greeted_(start == Start::kAtFirstByte) {}

  void feed(std::string_view bytes);
  std::optional<HostMessage> next();
  bool greeted() const { return greeted_; }  // true if the greeting has arrived
  bool broken() const { return broken_; }    // the bytes are not messages; no further message will follow

 private:
  void drop(std::size_t bytes);
  std::string buffer_;
  std::size_t start_ = 0;  // the first byte of buffer_ that is not yet part of a message
  bool greeted_;
  bool broken_ = false;
};

}  // namespace ddprun
