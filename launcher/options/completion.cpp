// Implementation of completion.hpp. Each script completes options, directories, other files, and the fixed words of an option's
// value. The scripts for bash, zsh and fish also complete subcommands with their options. After an argument that ends in .json
// they complete config keys.
#include "launcher/options/completion.hpp"

#include <vector>

#include "common/base/split.hpp"
#include "launcher/options/options_table.hpp"
#include "launcher/options/shell_quoted.hpp"
#include "launcher/options/subcommand_names.hpp"
#include "launcher/options/torchrun_differences.hpp"

namespace ddprun {
namespace {

std::vector<OptionSpec> options_of(std::string_view program) {
  std::vector<OptionSpec> options;
  for (const OptionSpec& option : option_table()) {
    if (program != "torchrun" || is_torchrun_option(option.name)) options.push_back(option);
  }
  return options;
}

bool takes_folder(const OptionSpec& option) {
  return option.value_name == "DIR";
}

std::string choices(const OptionSpec& option) {
  std::string text;
  for (const std::string_view word : words_of(option)) text += (text.empty() ? "" : " ") + std::string(word);
  return text;
}

// Escapes backslashes, which are special inside fish's single quotes. fish also accepts the escaped quotes of shell_quoted().
std::string fish_text(std::string_view text) {
  std::string result;
  for (const char c : text) result += c == '\\' ? std::string("\\\\") : std::string(1, c);
  return result;
}

std::string long_names(const std::vector<OptionSpec>& options) {
  std::string names;
  for (const OptionSpec& option : options) names += (names.empty() ? "--" : " --") + std::string(option.name);
  return names;
}

// Returns the keys, each followed by an equals sign, such as "optimizer.lr= schedule.type= ...".
std::string with_equals(std::span<const std::string> keys, char between) {
  std::string text;
  for (const std::string& key : keys) text += (text.empty() ? "" : std::string(1, between)) + key + "=";
  return text;
}

// Returns the part of the bash script that completes the name of a subcommand and its arguments.
std::string bash_of_subcommands(const std::string& program) {
  if (program == "torchrun") return {};
  std::string names, cases;
  for (const SubcommandSpec& each : kSubcommandTable) {
    names += (names.empty() ? "" : " ") + std::string(each.name);
    if (!each.options.empty())
      cases += "      " + std::string(each.name) + ") options=" + shell_quoted(std::string(each.options)) + " ;;\n";
  }
  return "  if ((COMP_CWORD == 1)) && [[ $current != -* ]]; then\n"
         "    COMPREPLY=($(compgen -W " +
         shell_quoted(names) + " -- \"$current\"))\n" +
         "    if ((${#COMPREPLY[@]})); then COMPREPLY+=($(compgen -f -- \"$current\")); return; fi\n"
         "  elif ((COMP_CWORD > 1)); then\n"
         "    case \"${COMP_WORDS[1]}\" in\n" +
         cases + "      help) COMPREPLY=($(compgen -W " + shell_quoted(names) +
         " -- \"$current\")); return ;;\n    esac\n  fi\n";
}

std::string for_bash(const std::string& program, std::span<const std::string> keys) {
  const std::vector<OptionSpec> options = options_of(program);
  std::string cases, folders;
  for (const OptionSpec& option : options) {
    const std::string name = "--" + std::string(option.name);
    if (takes_folder(option)) folders += (folders.empty() ? "" : "|") + name;
    if (const std::string words = choices(option); !words.empty()) {
      cases += "    " + name + ") COMPREPLY=($(compgen -W " + shell_quoted(words) + " -- \"$current\")); return ;;\n";
    }
  }
  if (!folders.empty()) cases += "    " + folders + ") COMPREPLY=($(compgen -d -- \"$current\")); return ;;\n";
  std::string of_keys;
  if (!keys.empty()) {
    of_keys =
        "  elif [[ \" ${COMP_WORDS[*]:1:COMP_CWORD-1} \" == *.json\\ * ]]; then\n"
        "    COMPREPLY=($(compgen -W " +
        shell_quoted(with_equals(keys, ' ')) + " -- \"$current\"))\n" +
        "    ((${#COMPREPLY[@]} == 0)) || compopt -o nospace 2>/dev/null\n";
  }
  // In bash the equals sign of --option=word is a separate element of COMP_WORDS, so the script skips it.
  return "# bash completion of " + program + "; in ~/.bashrc: eval \"$(" + program + " --print-completion bash)\"\n" +  //
         "_" + program + "_complete() {\n" +                                                                            //
         "  local current=\"${COMP_WORDS[COMP_CWORD]}\" previous=\"${COMP_WORDS[COMP_CWORD-1]}\"\n" +                   //
         "  local options=" + shell_quoted(long_names(options)) + "\n" +                                                //
         "  [[ $current == = ]] && current=\n" +                                                                        //
         "  [[ $previous == = ]] && previous=\"${COMP_WORDS[COMP_CWORD-2]}\"\n" +                                       //
         "  COMPREPLY=()\n" + bash_of_subcommands(program) +                                                            //
         "  case \"$previous\" in\n" + cases + "  esac\n" +                                                             //
         "  if [[ $current == -* ]]; then\n" +                                                                          //
         "    COMPREPLY=($(compgen -W \"$options\" -- \"$current\"))\n" + of_keys +                                     //
         "  fi\n}\n" +                                                                                                  //
         "complete -o default -F _" + program + "_complete " + program + "\n";
}

// Returns the zsh functions that complete the subcommands with their descriptions and options.
std::string zsh_of_subcommands(const std::string& program, std::span<const std::string> keys) {
  std::string names, cases;
  for (const SubcommandSpec& each : kSubcommandTable) {
    names += " " + shell_quoted(std::string(each.name) + ":" + std::string(each.doc));
    if (each.options.empty()) continue;
    cases += "    " + std::string(each.name) + ") compadd -- " + std::string(each.options) + "; _files; return ;;\n";
  }
  return "_" + program + "_first() {\n  local -a subcommands=(" + names.substr(1) + ")\n" +
         "  _describe -t commands subcommand subcommands\n  _files\n}\n" +  //
         "_" + program + "_rest() {\n" +                                    //
         "  if [[ -n ${(M)words[2,CURRENT-1]:#*.json} ]]; then compadd -S '' -- " + with_equals(keys, ' ') +
         "; fi\n  _files\n}\n" + "_" + program + "_of_subcommand() {\n  case $words[2] in\n" + cases +
         "  esac\n  return 1\n}\n";
}

std::string for_zsh(const std::string& program, std::span<const std::string> keys) {
  const bool subcommands = program != "torchrun";
  std::string text = "#compdef " + program + "\n# zsh completion of " + program + "; in ~/.zshrc: eval \"$(" + program +
                     " --print-completion zsh)\"\n";
  if (subcommands) text += zsh_of_subcommands(program, keys);
  text += "_" + program + "() {\n";
  if (subcommands) text += "  ((CURRENT > 2)) && _" + program + "_of_subcommand && return\n";
  text += "  _arguments -S";
  for (const OptionSpec& option : options_of(program)) {
    const std::string words = choices(option);
    std::string spec = "--" + std::string(option.name);
    if (!option.is_flag()) spec += "=";
    spec += "[" + std::string(option.doc) + "]";
    if (!option.is_flag()) {
      spec += ": :" + (!words.empty() ? "(" + words + ")" : takes_folder(option) ? std::string("_files -/") : std::string());
    }
    text += " \\\n    " + shell_quoted(spec);
  }
  text += subcommands ? " \\\n    '1: :_" + program + "_first' '*: :_" + program + "_rest'\n}\n" : " \\\n    '*: :_files'\n}\n";
  // The script can be loaded in two ways. If the user sources it, it must register its function. If compinit loads it from a
  // directory of functions, the script runs as the function itself and must call it.
  return text + "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _" + program + " \"$@\"; else compdef _" + program + " " +
         program + "; fi\n";
}

std::string for_fish(const std::string& program, std::span<const std::string> keys) {
  const std::string complete = "complete -c " + program;
  std::string text = "# fish completion of " + program + ": " + program +
                     " --print-completion fish > ~/.config/fish/completions/" + program + ".fish\n";
  std::string subcommands;
  for (const SubcommandSpec& each : kSubcommandTable) subcommands += " " + std::string(each.name);
  // A word is a subcommand only as the first argument. The launcher's options are not completed after a subcommand, which has
  // its own options.
  const std::string of_launcher = program == "torchrun" ? "" : " -n 'not contains -- (commandline -opc)[2]" + subcommands + "'";
  for (const OptionSpec& option : options_of(program)) {
    text += complete + of_launcher + " -l " + std::string(option.name);
    if (option.letter != 0) text += std::string(" -s ") + option.letter;
    const std::string words = choices(option);
    if (!option.is_flag()) {
      text += !words.empty()         ? " -x -a " + shell_quoted(words)
              : takes_folder(option) ? " -x -a '(__fish_complete_directories)'"
                                     : " -r";
    }
    text += " -d " + shell_quoted(fish_text(option.doc)) + "\n";
  }
  if (program == "torchrun") return text;
  for (const SubcommandSpec& each : kSubcommandTable) {
    const std::string name(each.name);
    const std::string described = " -d " + shell_quoted(fish_text(each.doc)) + "\n";
    text.append(complete).append(" -n __fish_is_first_token -a ").append(name).append(described);
    for (const std::string_view option : split(each.options, ' ')) {
      if (!option.starts_with("--")) break;
      text.append(complete).append(" -n 'contains -- (commandline -opc)[2] ").append(name);
      text.append("' -l ").append(option.substr(2)).append("\n");
    }
  }
  return text + complete + " -n 'string match -q \"*.json\" -- (commandline -opc)' -a " + shell_quoted(with_equals(keys, ' ')) +
         "\n";
}

std::string for_tcsh(const std::string& program) {
  const std::vector<OptionSpec> options = options_of(program);
  std::string names, text = "complete " + program;
  for (const OptionSpec& option : options) {
    names += (names.empty() ? "" : " ") + std::string(option.name);
    if (takes_folder(option)) text += " 'n/--" + std::string(option.name) + "/d/'";
    if (const std::string words = choices(option); !words.empty()) {
      text.append(" 'n/--").append(option.name).append("/(").append(words).append(")/'");
      text.append(" 'c/--").append(option.name).append("=/(").append(words).append(")/'");
    }
  }
  return "# tcsh completion of " + program + ": put it into a file that ~/.tcshrc sources\n" + text + " 'c/--/(" + names +
         ")/' 'p/*/f/'\n";
}

}  // namespace

std::string completion_script(std::string_view shell, std::string_view program, std::span<const std::string> keys) {
  const std::string name(program);
  if (shell == "zsh") return for_zsh(name, keys);
  if (shell == "fish") return for_fish(name, keys);
  if (shell == "tcsh") return for_tcsh(name);
  return for_bash(name, keys);
}

}  // namespace ddprun
