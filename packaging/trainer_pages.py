"""The manual page and the completions of ddptrain, generated from the output of `ddptrain --help` so that they agree with it."""

import re


def options_of(text: str) -> list[tuple[str, str, str]]:
    """Name, value and explanation of each option of a CLI11 help text; the value is empty for a flag."""
    found = []
    for line in text.split("Options:")[1].splitlines():
        if option := re.match(r"  (?:-\w,)?(--[\w-]+)(?: (\S.*?))?(?:  +(\S.*))?$", line):
            found.append([option[1], option[2] or "", option[3] or ""])
        elif line.strip() and found:
            found[-1][2] = " ".join([found[-1][2], line.strip()]).strip()
    return [tuple(each) for each in found]


def roff(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-")


def man_page(text: str, version: str) -> str:
    lines = [f'.TH DDPTRAIN 1 "" "ddprun {version}" "User Commands"', ".SH NAME", "ddptrain \\- a worker of ddprun that trains from a train.json",
             ".SH SYNOPSIS", ".B ddptrain", "[OPTIONS] train.json [key=value ...]", ".SH DESCRIPTION", roff(text.splitlines()[0]), ".SH OPTIONS"]
    for name, value, explanation in options_of(text):
        lines += [".TP", f"\\fB{roff(name)}\\fR" + (f" \\fI{roff(value)}\\fR" if value else ""), roff(explanation)]
    return "\n".join([*lines, ".SH SEE ALSO", ".BR ddprun (1)", ""])


def bash(names: list[str]) -> str:
    return f"""_ddptrain() {{
  local word=${{COMP_WORDS[COMP_CWORD]}}
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W '{" ".join(names)}' -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}}
complete -o filenames -F _ddptrain ddptrain
"""


def zsh(options: list[tuple[str, str, str]]) -> str:
    def spec(name: str, value: str, explanation: str) -> str:
        escaped = re.sub(r"([\[\]:\\])", r"\\\1", explanation).replace("'", "'\\''")
        return f"  '{name}[{escaped}]{':value:_files' if value else ''}'"

    return "#compdef ddptrain\n_arguments \\\n" + " \\\n".join(spec(*each) for each in options) + " \\\n  '*:file:_files'\n"


def fish(options: list[tuple[str, str, str]]) -> str:
    return "".join("complete -c ddptrain -l {} {}-d '{}'\n".format(name[2:], "-r " if value else "", explanation.replace("\\", "\\\\").replace("'", "\\'"))
                   for name, value, explanation in options)


def pages(text: str, version: str) -> dict[str, str]:
    """The pages by their path below share/."""
    options = options_of(text)
    return {"man/man1/ddptrain.1": man_page(text, version), "bash-completion/completions/ddptrain": bash([name for name, _, _ in options]),
            "zsh/site-functions/_ddptrain": zsh(options), "fish/vendor_completions.d/ddptrain.fish": fish(options)}
