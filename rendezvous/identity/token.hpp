// The job's token: where it comes from, how strong it must be, and how a new one is made. The launcher calls this when a job
// with several nodes starts, and so does `ddprun token`. No message, log or argument ever holds a token; errors name only where
// it came from.
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

// 256 random bits as 64 hexadecimal digits. Throws InternalError when the kernel has none.
Token new_token();

// Checks a token's strength: at least 128 bits, as far as one can tell from the text. Errors name `source` and never the token.
// Surrounding white space is dropped. Throws TokenError.
Token check_token(std::string text, const std::string& source);

// Reads and checks a token file: a regular file of this user or root that nobody else can read. Throws TokenError, whose
// message has the chmod command that mends it.
Token read_token_file(const std::filesystem::path& file);

// Makes `file` with a new token (or `content`) and mode 0600: as a whole or not at all, and never over an existing file.
// Missing parent folders are made with mode 0700. False when another process was first. Throws TokenError when the file can't
// be written.
bool make_token_file(const std::filesystem::path& file, const Token& content);

// Waits until `file` exists, also on shared file systems. False when `patience` ran out.
bool wait_for_token_file(const std::filesystem::path& file, std::chrono::milliseconds patience);

// Takes DDPRUN_TOKEN out of this process: out of its environment, and out of the memory that /proc/self/environ shows. Returns
// nothing when the variable is unset or empty.
std::optional<std::string> take_token_variable();

// $XDG_CONFIG_HOME/ddprun/token, else ~/.config/ddprun/token; empty when neither variable is set.
std::filesystem::path token_file_of_user();

struct TokenSources {
  enum class Node { kFirst, kOther };   // kFirst makes <run-dir>/token, the others wait for it
  std::filesystem::path token_file;     // what --token-file names
  std::optional<std::string> variable;  // the result of take_token_variable()
  std::filesystem::path run_dir;        // empty: the job has no run directory
  std::filesystem::path user_file;      // the result of token_file_of_user()
  Node node = Node::kFirst;
  std::chrono::milliseconds patience{5000};
};

struct FoundToken {
  Token token;
  std::string source;          // for messages: the file's path or "DDPRUN_TOKEN"
  std::filesystem::path file;  // empty when the token came from the variable
  bool made = false;           // this call has made the file
};

// The token from the first source that has one: --token-file, DDPRUN_TOKEN, <run-dir>/token, the user's file. On the first node
// the call makes the last two files where they are missing (the run directory's is a copy of the user's). Throws TokenError,
// whose message has the command to run.
FoundToken find_token(TokenSources sources);

}  // namespace ddprun
