"""Tests that the commands in README and docs are accepted, and that their configs are valid. tests/style/links.py checks the
links of these pages."""

import json
import pathlib
import re
import shlex
import shutil
import sys
import typing

import jobs
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def test_the_recipes_requeue_by_exit_code():
    text = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    assert "action: Ignore\n        onExitCodes: {operator: In, values: [85, 86, 143]}" in text
    assert "case $? in 85|86|143) scontrol requeue" in text


NOT_RUN = "<!-- not run by tests: "  # followed by the reason; precedes a block of code that the tests skip
OPERATORS = set("|&;()<>")
TEXTS = {"--help", "--help-all", "--version", "--torchrun-help", "--print-completion", "--print-man"}


class Command(typing.NamedTuple):
    line: int
    words: list[str]  # the command's words after `ddprun`


def code_lines(page: pathlib.Path) -> list[tuple[int, str]]:
    """Returns the lines of a page's shell blocks and indented examples, with their line numbers. Lines continued with a
    backslash are joined. Blocks that are marked with NOT_RUN are skipped."""
    found: list[tuple[int, str]] = []
    fence, marked, indented = None, False, False
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), start=1):
        if line.startswith("```"):
            fence = line[3:] if fence is None else None
            marked = marked and fence is not None
        elif fence is not None:
            if fence in ("sh", "bash") and not marked:
                if found and found[-1][1].endswith("\\"):
                    found[-1] = (found[-1][0], found[-1][1][:-1] + " " + line.strip())
                else:
                    found.append((number, line))
        elif line.startswith(NOT_RUN):
            marked = True
        elif line.startswith("    ddprun "):
            indented = True
            if not marked:
                found.append((number, line.strip()))
        elif line.strip() and not line.startswith("    "):
            marked, indented = marked and not indented, False
    return found


def commands(page: pathlib.Path) -> list[Command]:
    """Returns the commands of a page that start ddprun, including commands after srun or after variable assignments."""
    found = []
    for number, line in code_lines(page):
        if not re.search(r"\bddprun ", line) or line.startswith("#SBATCH"):
            continue
        # The lexer treats the character # as the start of a comment. In an indented command, two spaces and # start a comment,
        # which is removed first.
        lexer = shlex.shlex(line.split("  #")[0], posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        simple: list[list[str]] = [[]]
        for word in lexer:
            if set(word) <= OPERATORS:
                simple.append([])
            else:
                simple[-1].append(word)
        for words in simple:
            while words and (re.match(r"\w+=", words[0]) or words[0] in ("exec", "srun", "nohup", "time") or "srun" in line and words[0].startswith("-")):
                words.pop(0)
            if words and re.fullmatch(r"(\S*/)?ddprun", words[0]):
                found.append(Command(number, words[1:]))
    return found


@pytest.fixture(scope="module")
def folder_of_the_reader(tmp_path_factory):
    """Returns a folder in which the commands of the pages can run. It contains the files that the commands name."""
    folder = tmp_path_factory.mktemp("reader")
    shutil.copytree(ROOT / "configs", folder / "configs")
    (folder / "train.json").write_text((ROOT / "configs" / "fashion-mnist.json").read_text(encoding="utf-8"), encoding="utf-8")
    return folder


def make_files(folder: pathlib.Path, words: list[str]):
    for word in words:
        if word.endswith(".py") and not (folder / word).exists():
            (folder / word).parent.mkdir(parents=True, exist_ok=True)
            (folder / word).write_text("")
        elif word.startswith("./") and not (folder / word).exists():
            (folder / word).write_text("#!/bin/sh\n")
            (folder / word).chmod(0o755)


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_are_accepted(page, ddprun_bin, folder_of_the_reader):
    """Each command is parsed. A command that would start a job is run with --dry-run. Commands marked with NOT_RUN are
    skipped, because they need something that this machine does not have."""
    refused = []
    for command in commands(page):
        words = command.words
        make_files(folder_of_the_reader, words)
        if words[0] in ("validate", "init", "report", "doctor", "join", "token", "link-torchrun", "help", "version"):
            text = "--help-all" if words[0] == "join" else [words[0], "--help"]
            known = jobs.run([ddprun_bin, *([text] if isinstance(text, str) else text)]).stdout
            if words[0] == "doctor":  # doctor accepts the options of a job too
                known += jobs.run([ddprun_bin, "--help-all"]).stdout
            problem = [word for word in words if word.startswith("-") and word not in known]
        elif words[0] in ("submit", "bench"):
            done = jobs.run([ddprun_bin, *words[:2], "--dry-run", *words[2:]], cwd=folder_of_the_reader)
            problem = done.stderr if done.returncode else None
        elif TEXTS & set(words):
            problem = jobs.run([ddprun_bin, *words]).returncode
        else:
            done = jobs.run([ddprun_bin, "--dry-run", *words], cwd=folder_of_the_reader, PYTHON_EXEC=sys.executable)
            # `absent_data` is True if the command failed only because its data is not on this machine.
            absent_data = done.returncode == 2 and "files that the config names are missing or cannot be read on this machine:\n" in done.stderr
            problem = done.stderr if done.returncode and not absent_data else None
        if problem:
            refused.append(f"{page.name}:{command.line}: ddprun {shlex.join(words)}: {problem}")
    assert not refused, "\n".join(refused)


def test_the_commands_are_found():
    assert len([c for c in commands(ROOT / "README.md") if any(word.startswith("train.") for word in c.words)]) >= 3
    assert sum(len(commands(page)) for page in (ROOT / "docs").glob("*.md")) > 40


def test_the_config_of_the_readme_is_valid(ddprun_bin, tmp_path):
    text = re.search(r"```json\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S).group(1)
    (tmp_path / "train.json").write_text(text, encoding="utf-8")
    done = jobs.run([ddprun_bin, "validate", tmp_path / "train.json"])
    assert done.returncode == 0 or "files that the config names are missing or cannot be read on this machine:\n" in done.stderr, done.stderr
    assert json.loads(done.stdout)["epochs"] == 3


def test_subcommands_of_the_readme_exist(ddprun_bin, tmp_path):
    done = jobs.run([ddprun_bin, "report", tmp_path])
    assert done.returncode == 2 and "report.json" in done.stderr
