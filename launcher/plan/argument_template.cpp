// Implementation of argument_template.hpp. It replaces $name and ${name} by torchrun's rules, in one pass over the text.
#include "launcher/plan/argument_template.hpp"

namespace ddprun {
namespace {

bool starts_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

std::string_view name_at_start(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size() && (starts_name(text[end]) || (end > 0 && text[end] >= '0' && text[end] <= '9'))) ++end;
  return text.substr(0, end);
}

}  // namespace

std::string fill_template(std::string_view text, const std::function<std::optional<std::string>(std::string_view)>& lookup) {
  std::string result;
  for (;;) {
    const std::size_t dollar = text.find('$');
    result += text.substr(0, dollar);
    if (dollar == std::string_view::npos) return result;
    text.remove_prefix(dollar + 1);
    if (text.starts_with('$')) {
      result += '$';
      text.remove_prefix(1);
      continue;
    }
    const bool braces = text.starts_with('{');
    const std::string_view name = name_at_start(braces ? text.substr(1) : text);
    const bool whole = !name.empty() && (!braces || text.substr(name.size() + 1).starts_with('}'));
    const auto value = whole ? lookup(name) : std::nullopt;
    if (!value) {
      result += '$';
      continue;
    }
    result += *value;
    text.remove_prefix(name.size() + (braces ? 2 : 0));
  }
}

std::vector<std::string> fill_arguments(std::vector<std::string> command, int local_rank) {
  for (std::size_t i = 1; i < command.size(); ++i) {
    if (command[i].find('$') == std::string::npos) continue;
    command[i] = fill_template(command[i], [local_rank](std::string_view name) -> std::optional<std::string> {
      if (name != "local_rank") return std::nullopt;
      return std::to_string(local_rank);
    });
  }
  return command;
}

}  // namespace ddprun
