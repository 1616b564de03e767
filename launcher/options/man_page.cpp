#include "launcher/options/man_page.hpp"

#include "launcher/options/options.hpp"
#include "launcher/options/options_table.hpp"
#include "launcher/options/subcommand_names.hpp"

namespace ddprun {
namespace {

// Escapes text for roff. An unescaped dash would be printed as a hyphen. A dot or a quote at the start of a line would start a
// roff command.
std::string roff(std::string_view text) {
  std::string out = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else {
      if (c == '-') out += '\\';
      out += c;
    }
  }
  return out;
}

std::string upper(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, text.find(','))) out += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return out;
}

std::string entry(std::string_view name, std::string_view text) {
  return ".TP\n.B " + roff(name) + "\n" + roff(text) + "\n";
}

}  // namespace

std::string man_page(std::string_view version) {
  std::string text = ".TH DDPRUN 1 \"\" \"ddprun " + std::string(version) +
                     "\" \"User Commands\"\n"
                     ".SH NAME\nddprun \\- start distributed training jobs and keep them alive\n"
                     ".SH SYNOPSIS\n"
                     ".B ddprun\n[options] TRAIN.json [key.path=value ...] [options]\n.br\n"
                     ".B ddprun\n[options] PROGRAM [arguments ...]\n";
  for (const SubcommandSpec& each : kSubcommandTable) {
    text += ".br\n.B ddprun " + std::string(each.name) + "\n" + (each.arguments.empty() ? "" : roff(each.arguments) + "\n");
  }
  text +=
      ".SH DESCRIPTION\n"
      "Starts one worker process per GPU, or the requested number, restarts them when one fails, and resumes from the newest "
      "checkpoint.\n"
      "If PROGRAM ends in .json, it is a config, and options may also follow it. Otherwise all words after PROGRAM are its "
      "arguments.\n"
      ".SH SUBCOMMANDS\n"
      "A subcommand is recognised only as the first argument.\n";
  for (const SubcommandSpec& each : kSubcommandTable) text += entry(each.name, std::string(each.doc) + ".");
  for (const OptionGroupTitle& group : option_group_titles()) {
    text += ".SH " + roff(upper(group.title)) + "\n";
    for (const OptionSpec& option : option_table()) {
      if (option.group != group.group) continue;
      std::string name = left_side(option);
      name.erase(0, name.find_first_not_of(' '));
      text += entry(name, explanation(option));
    }
  }
  return text +
         ".SH ENVIRONMENT\n"
         "Every option can also be set by the environment variable DDPRUN_<NAME> or PET_<NAME>; the first takes precedence. "
         "NO_COLOR turns colours off.\n"
         ".SH EXIT STATUS\n"
         "0: the job has completed. 2: an error that the user can fix on the command line or in a file. 80 to 90: a failure "
         "that ddprun itself detected. Other codes: the exit code of the worker that failed first.\n"
         ".SH SEE ALSO\n"
         "The pages in share/doc/ddprun of the installation.\n";
}

}  // namespace ddprun
