// Finds the token of a job in a command-line option, an environment variable, or one of two files. On the first node, missing
// files are created. The launcher calls these functions at the start of a multi-node job. `ddprun join` and `ddprun token` call
// them too.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "rendezvous/identity/token.hpp"

namespace ddprun {

// Returns the value of DDPRUN_TOKEN, and removes it from this process's environment and from the memory behind
// /proc/self/environ. Returns nullopt if the variable is unset or empty.
std::optional<std::string> take_token_variable();

// Returns the path of the user's token file: $XDG_CONFIG_HOME/ddprun/token, or else ~/.config/ddprun/token. The path is empty
// if neither XDG_CONFIG_HOME nor HOME is set.
std::filesystem::path token_file_of_user();

struct TokenSources {
  enum class Node { kFirst, kOther };   // kFirst creates <run-dir>/token; kOther waits until that file exists
  std::filesystem::path token_file;     // the value of --token-file
  std::optional<std::string> variable;  // the result of take_token_variable()
  std::filesystem::path run_dir;        // empty if the job has no run directory
  std::filesystem::path user_file;      // the result of token_file_of_user()
  Node node = Node::kFirst;
  std::chrono::milliseconds patience{5000};
};

struct FoundToken {
  Token token;
  std::string source;          // for messages: the file's path or "DDPRUN_TOKEN"
  std::filesystem::path file;  // the file that contains the token; empty if the token came from DDPRUN_TOKEN
  bool made = false;           // true if this call has created the file
};

// Returns the token of the first available source, in this order: --token-file, DDPRUN_TOKEN, <run-dir>/token, the user's file.
// On the first node, a missing <run-dir>/token is created as a copy of the user's file. If the user's file is missing too, it
// is created with a new token. Throws TokenError; its message contains the command that solves the problem.
FoundToken find_token(TokenSources sources);

}  // namespace ddprun
