#include "rendezvous/identity/token_search.hpp"

#include <string.h>

#include <cstdlib>
#include <utility>

#include "rendezvous/identity/token_file.hpp"

namespace ddprun {
namespace {

constexpr const char* kVariable = "DDPRUN_TOKEN";

FoundToken from_file(const std::filesystem::path& file, bool made) {
  return {read_token_file(file), file.string(), file, made};
}

// Reads the token from the user's token file. Creates the file if it does not exist.
FoundToken user_token(const std::filesystem::path& file) {
  const bool made = !std::filesystem::exists(file) && make_token_file(file, new_token());
  return from_file(file, made);
}

[[noreturn]] void throw_no_token(const TokenSources& sources) {
  std::string where;
  if (!sources.run_dir.empty()) where = (sources.run_dir / "token").string();
  if (!sources.user_file.empty()) where += (where.empty() ? "" : " or ") + sources.user_file.string();
  throw TokenError(
      "this node has no token of the job" + (where.empty() ? std::string() : ": expected it in " + where) +
      ". On the first node, ddprun token prints the path of its token: copy that file here and pass it with --token-file");
}

}  // namespace

std::optional<std::string> take_token_variable() {
  char* const value = ::getenv(kVariable);
  if (value == nullptr) return std::nullopt;
  std::string text = value;
  ::explicit_bzero(value, text.size());
  ::unsetenv(kVariable);
  if (text.empty()) return std::nullopt;
  return text;
}

std::filesystem::path token_file_of_user() {
  const auto folder = [](const char* variable) -> std::filesystem::path {
    const char* const value = ::getenv(variable);
    return value != nullptr && *value == '/' ? value : "";
  };
  if (const auto config = folder("XDG_CONFIG_HOME"); !config.empty()) return config / "ddprun" / "token";
  if (const auto home = folder("HOME"); !home.empty()) return home / ".config" / "ddprun" / "token";
  return {};
}

FoundToken find_token(TokenSources sources) {
  if (!sources.token_file.empty()) return from_file(sources.token_file, false);
  if (sources.variable) return {check_token(std::move(*sources.variable), kVariable), kVariable, {}, false};
  if (!sources.run_dir.empty()) {
    const auto file = sources.run_dir / "token";
    if (std::filesystem::exists(file)) return from_file(file, false);
    if (sources.node == TokenSources::Node::kFirst) {
      const Token content = sources.user_file.empty() ? new_token() : user_token(sources.user_file).token;
      return from_file(file, make_token_file(file, content));
    }
    if (wait_for_token_file(file, sources.patience)) return from_file(file, false);
    if (!sources.user_file.empty() && std::filesystem::exists(sources.user_file)) return from_file(sources.user_file, false);
    throw_no_token(sources);
  }
  if (sources.user_file.empty()) throw_no_token(sources);
  return user_token(sources.user_file);
}

}  // namespace ddprun
