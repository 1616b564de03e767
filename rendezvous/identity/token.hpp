// The job's token: where it comes from, what it must be like, and how one is made. Called by the launcher at the start of a job
// with several nodes and by `ddprun token`. A token is never part of a message, a log or an argument; errors name its source
// only.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/error.hpp"

namespace ddprun {

// Missing, weak, readable by others. Exit 81.
class TokenError : public Error {
 public:
  explicit TokenError(const std::string& message) : Error(ExitCode::kTokenRefused, message) {}
};

// Wiped from memory at its end.
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

// Checks a token's strength: at least 128 bits, as far as its look can tell. `source` is named in errors, the token is not.
// Surrounding white space is dropped. Throws TokenError.
Token check_token(std::string text, const std::string& source);

// Reads and checks a token's file: a regular file of this user or root that nobody else can read. Throws TokenError; its
// message has the chmod that mends it.
Token read_token_file(const std::filesystem::path& file);

// Makes `file` with a new token (or `content`), mode 0600, whole or not at all and never over an existing one; folders in
// between are made 0700. False when somebody else was first. Throws TokenError when it can't be written.
bool make_token_file(const std::filesystem::path& file, const Token& content);

// Waits until `file` exists, on shared file systems too. False when time is over.
bool wait_for_token_file(const std::filesystem::path& file, std::chrono::milliseconds patience);

// Takes DDPRUN_TOKEN out of this process: from its environment and from the memory that /proc/self/environ shows. Nothing when
// it is unset or empty.
std::optional<std::string> take_token_variable();

// $XDG_CONFIG_HOME/ddprun/token, else ~/.config/ddprun/token; empty when neither variable is set.
std::filesystem::path token_file_of_user();

struct TokenSources {
  enum class Node { kFirst, kOther };   // the first one makes <run-dir>/token, others wait for it
  std::filesystem::path token_file;     // --token-file
  std::optional<std::string> variable;  // of take_token_variable()
  std::filesystem::path run_dir;        // empty: the job has none
  std::filesystem::path user_file;      // of token_file_of_user()
  Node node = Node::kFirst;
  std::chrono::milliseconds patience{5000};
};

struct FoundToken {
  Token token;
  std::string source;          // for people: the file's path or "DDPRUN_TOKEN"
  std::filesystem::path file;  // empty when it came from the variable
  bool made = false;           // just now, by this call
};

// The first source that has one: --token-file, DDPRUN_TOKEN, <run-dir>/token, the user's file. The first node makes the last
// two where they are missing (the run directory's is a copy of the user's). Throws TokenError with the line to run.
FoundToken find_token(TokenSources sources);

}  // namespace ddprun
