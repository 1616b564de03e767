// See completion.hpp. Each script completes options, the words that some of them take, folders, and files elsewhere.
#include "launcher/options/completion.hpp"

#include <vector>

#include "launcher/options/options_table.hpp"
#include "launcher/options/options_torchrun.hpp"
#include "launcher/options/shell_quoted.hpp"

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

std::string long_names(const std::vector<OptionSpec>& options) {
  std::string names;
  for (const OptionSpec& option : options) names += (names.empty() ? "--" : " --") + std::string(option.name);
  return names;
}

std::string for_bash(const std::string& program) {
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
  // Bash takes --option=word apart at the equals sign.
  return "# bash completion of " + program + "; in ~/.bashrc: eval \"$(" + program + " --print-completion bash)\"\n" +  //
         "_" + program + "_complete() {\n" +                                                                            //
         "  local current=\"${COMP_WORDS[COMP_CWORD]}\" previous=\"${COMP_WORDS[COMP_CWORD-1]}\"\n" +                   //
         "  [[ $current == = ]] && current=\n" +                                                                        //
         "  [[ $previous == = ]] && previous=\"${COMP_WORDS[COMP_CWORD-2]}\"\n" +                                       //
         "  COMPREPLY=()\n" +                                                                                           //
         "  case \"$previous\" in\n" + cases + "  esac\n" +                                                             //
         "  if [[ $current == -* ]]; then\n" +                                                                          //
         "    COMPREPLY=($(compgen -W " + shell_quoted(long_names(options)) + " -- \"$current\"))\n" +                  //
         "  fi\n}\n" +                                                                                                  //
         "complete -o default -F _" + program + "_complete " + program + "\n";
}

std::string for_zsh(const std::string& program) {
  std::string text = "#compdef " + program + "\n# zsh completion of " + program + "; in ~/.zshrc: eval \"$(" + program +
                     " --print-completion zsh)\"\n_" + program + "() {\n  _arguments -S";
  for (const OptionSpec& option : options_of(program)) {
    const std::string words = choices(option);
    std::string spec = "--" + std::string(option.name);
    if (option.kind == OptionSpec::Kind::kValue) spec += "=";
    spec += "[" + std::string(option.doc) + "]";
    if (option.kind == OptionSpec::Kind::kValue) {
      spec += ": :" + (!words.empty() ? "(" + words + ")" : takes_folder(option) ? std::string("_files -/") : std::string());
    }
    text += " \\\n    " + shell_quoted(spec);
  }
  return text + " \\\n    '*: :_files'\n}\ncompdef _" + program + " " + program + "\n";
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

std::string completion_script(std::string_view shell, std::string_view program) {
  const std::string name(program);
  if (shell == "zsh") return for_zsh(name);
  if (shell == "tcsh") return for_tcsh(name);
  return for_bash(name);
}

}  // namespace ddprun
