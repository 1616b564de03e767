// The job's token: where it comes from, how strong it must be, and how a new one is made. The launcher uses this when a job
// with several nodes starts, and so does `ddprun token`. No message, log or argument ever contains a token; errors contain only
// its source.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/error.hpp"

namespace ddprun {

// A token is missing, weak, or readable by other users. Exit code 81.
class TokenError : public Error {
 public:
  explicit TokenError(const std::string& message) : Error(ExitCode::kTokenRefused, message) {}
};

// The text of a token. The destructor wipes it from memory.
class Token {
 public:
  explicit Token(std::string text) : text_(std::move(text)) {}
  ~Token() { wipe(); }
  Token(Token&& other) noexcept;
  Token& operator=(Token&& other) noexcept;
  Token(const Token&) = delete;
  Token& operator=(const Token&) = delete;

  std::string_view text() const { return text_; }

 private:
  void wipe() noexcept;
  std::string text_;
};

// 256 random bits as 64 hexadecimal digits. Throws InternalError if the kernel has no random bits.
Token new_token();

// Checks that a token has at least 128 bits, as far as its text shows. Drops surrounding white space. Throws TokenError; the
// error contains `source` and never the token.
Token check_token(std::string text, const std::string& source);

// Reads and checks a token file: a regular file of this user or root that no other user can read. Throws TokenError, whose
// message contains the chmod command that fixes the file.
Token read_token_file(const std::filesystem::path& file);

// Creates `file` with a new token (or `content`) and mode 0600, atomically, and never over an existing file. Creates missing
// parent folders with mode 0700. Returns false if another process was first. Throws TokenError if the file can't be written.
bool make_token_file(const std::filesystem::path& file, const Token& content);

// Waits until `file` exists, also on shared file systems. Returns false on timeout.
bool wait_for_token_file(const std::filesystem::path& file, std::chrono::milliseconds patience);

// Removes DDPRUN_TOKEN from this process's environment, and from the memory that /proc/self/environ shows. Returns nullopt if
// the variable is unset or empty.
std::optional<std::string> take_token_variable();

// $XDG_CONFIG_HOME/ddprun/token, or else ~/.config/ddprun/token; empty if neither variable is set.
std::filesystem::path token_file_of_user();

struct TokenSources {
  enum class Node { kFirst, kOther };   // kFirst makes <run-dir>/token, the others wait for it
  std::filesystem::path token_file;     // the value of --token-file
  std::optional<std::string> variable;  // the result of take_token_variable()
  std::filesystem::path run_dir;        // empty: the job has no run directory
  std::filesystem::path user_file;      // the result of token_file_of_user()
  Node node = Node::kFirst;
  std::chrono::milliseconds patience{5000};
};

struct FoundToken {
  Token token;
  std::string source;          // for messages: the file's path or "DDPRUN_TOKEN"
  std::filesystem::path file;  // empty if the token came from the variable
  bool made = false;           // true if this call has created the file
};

// The token from the first available source: --token-file, DDPRUN_TOKEN, <run-dir>/token, the user's file. On the first node,
// the call creates the last two files if they are missing. The run directory's file is a copy of the user's. Throws TokenError,
// whose message contains the command to run.
FoundToken find_token(TokenSources sources);

}  // namespace ddprun
