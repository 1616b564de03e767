"""Tests of tests/style: each rule must report a violation and accept a text without one. `./dev format --check` applies the
rules to this repository."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECK = ROOT / "tests" / "style" / "check.py"
INDEX = "# Decisions\n\n- [one](one.md)\n\n## Settled questions\n\n| 7 | One |\n"
LONG = "A sentence " + "with many words " * 8 + "ends here."

# Each entry has the name of a file, its text, the line of the expected violation (None if there must be no violation), and a
# substring of the expected message.
VIOLATIONS = [
    ("README.md", f"# A page\n\n{LONG}\n", 3, "a sentence of 28 words: write sentences of at most 25"),
    ("docs/internals/decisions/one.md", f"# One\n\n- {LONG}\n", 3, "a sentence of 28 words"),
    ("docs/words.md", "# Words\n\nThe job goes\non.\n", 3, 'docs: "goes on": write continue'),
    ("docs/schemas/a.json", '{\n  "description": "Of rank 0."\n}\n', 2, 'docs: a message or paragraph that begins with "Of"'),
    ("launcher/comment.cpp", "int a;\n// The agent may go\n// on without it.\n", 2, 'comment: "go on"'),
    ("launcher/of.cpp", "int a;  // of the mean step\n", 1, 'comment: a comment that begins with "Of"'),
    ("launcher/empty.cpp", "int a;  // empty: unknown\n", 1, 'comment: "nothing:" or "empty:" before the meaning'),
    ("launcher/who.cpp", "// A user who reads this is one. The rank who reads this is none.\n", 1, 'comment: "who" for a process'),
    ("launcher/what.cpp", "// What is left is dropped.\n", 1, 'comment: a sentence that begins with "What" or "Who"'),
    ("launcher/is_no.cpp", "// There is no file. A file is no folder.\n", 1, 'comment: "is no X"'),
    ("launcher/such.cpp", "// Empty if there is no such key.\n", 1, 'comment: "there is no such X"'),
    ("launcher/message.cpp", 'auto a = "started "\n         "an" \n         "ew";\n', 2, 'message: "anew": write again'),
    ("launcher/name.cpp", "int a;\nint goes_on, it_goes_on;\nint b = goes_on;\n", 2, 'name: "goes on": write continue; resume, from a checkpoint: goes_on (2 places)'),
    ("launcher/constant.cpp", "int kMostBytes;\n", 1, "name: `kMost...`, `MOST_...`: write `kMax...`"),
    ("launcher/farewell.cpp", "", 1, 'name: "farewell"'),
    ("python/docstring.py", '"""Starts the job anew."""\n', 1, 'comment: "anew"'),
    ("python/placeholder.py", 'text = f"{told} bytes"\n', 1, 'name: "told"'),
    ("cmake/a.cmake", '# The job.\nmessage("the job is told")\n', 2, 'message: "told"'),
    ("dev", "#!/bin/sh\necho the job is told\n", 2, 'message: "told"'),
    ("common/twice/a.cpp", "namespace {\nint twice() { return 1; }\n}  // namespace\n", None, ""),
    ("common/twice/b.cpp", "namespace {\nint twice() { return 1; }\n}  // namespace\n", 2, "common/twice/a.cpp:2 declares the same name"),
    ("common/long/long.cpp", "int a;\n" * 401, 1, "a file of 401 lines of code, at most 400"),
    *[(f"trainer/many/{letter}.hpp", "", None, "") for letter in "abcdefghijklmnopqrstuvwxy"],
    ("trainer/many/z.hpp", "", 1, "a module of 26 files: write modules of at most 25 files"),
    ("trainer/split/nested/a.cpp", "void Split::first() {\n}\n", None, ""),
    ("trainer/split/nested/b.cpp", "\nvoid Split::second() {\n}\n", 2, "trainer/split/nested/a.cpp defines methods of this class too"),
    ("rendezvous/one/a.hpp", "namespace one {\nstruct Same {\n};\n}  // namespace one\n", None, ""),
    ("rendezvous/two/b.hpp", "namespace two {\nstruct Same {\n};\n}  // namespace two\n", 2, "rendezvous/one/a.hpp:2 declares another type of this name"),
    ("docs/file.md", "# Links\n\n[a](missing.md)\n", 3, "a link to a file that does not exist: write an existing file: missing.md"),
    ("docs/anchor.md", "# Links\n\n[a](file.md#links) [b](file.md#no)\n", 3, "a link to a heading that does not exist: write a heading of docs/file.md: file.md#no"),
    ("docs/path.md", "# Path\n\n`cmd/file.cpp`, `cmd/none.cpp`\n", 3, "a path that does not exist: write an existing path: cmd/none.cpp"),
    ("docs/internals/glossary.md", "# Glossary\n\n| word | meaning |\n|---|---|\n" + "| a | b |\n" * 26, 1, "26 entries: write at most 25"),
    ("cmd/decision.cpp", "// decision 7, decision 8\n", 1, "a decision that does not exist: write a number of docs/internals/decisions/README.md: decision 8"),
    ("docs/internals/decisions/two.md", "# Two\n", 1, "a decision without a line in the index"),
    ("cmd/file.cpp", "// decision.cpp, nowhere.cpp\n", 1, "a file that does not exist: write the name of an existing file: nowhere.cpp"),
    ("tests/faults.md", "# Faults\n\ntest_a.py (`is_there`, `is_missing`), test_b.py\n", 3, "a test that does not exist: write a part of an existing test's name: is_missing"),
    ("tests/whole_program/test_a.py", "def test_this_is_there():\n    pass\n", None, ""),
    ("docs/internals/fixes.md", "# Tests\n\n- `test_a.py`: `test_this_is_there`\n- `test_a.py`: `test_none`\n", 4, "a test that does not exist in tests/whole_program/test_a.py"),
]

# Texts that resemble violations but must be accepted.
ACCEPTED = {
    "docs/accepted.md": "# What can go wrong\n\nRun `ddprun anew`. Users who read it know head room. There is no file.\n\n    it goes on\n\nOf two nodes, one leads.\n",
    "launcher/accepted.cpp": '// `goes_on` and goes_on() are names; --figures is an option. See [https://example.org/anew].\n'
                             'auto a = "figures";  // "figures" is a key\nauto b = R"({"ask":"status"})";\nint lookup(int look_up);\n',
    "common/accepted/x.cpp": '// Note [Why this file is long]: a test.\n' + "int a;\n" * 401,
    "common/accepted/generated.md": f"<!-- Generated -->\n\n{LONG}\n",
    "tests/whole_program/earlier/old.py": '"""Starts anew."""\n',
}


def write(folder: pathlib.Path, files: dict[str, str]) -> pathlib.Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def check(root: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, CHECK, "--root", root, *arguments], cwd=root, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> pathlib.Path:
    """Returns a folder with the files of VIOLATIONS and ACCEPTED. The word tables in the folder come from this repository."""
    style = (ROOT / "docs/internals/style.md").read_text(encoding="utf-8")
    tables = style[style.index("### Words that we do not use") : style.index("\n## Commits")]
    files = {"docs/internals/style.md": tables, "docs/internals/decisions/README.md": INDEX}
    return write(tmp_path_factory.mktemp("repository"), {**files, **{name: text for name, text, _, _ in VIOLATIONS}, **ACCEPTED})


@pytest.fixture(scope="module")
def found(repository) -> list[str]:
    done = check(repository)
    assert done.returncode == 1, done
    return done.stdout.splitlines()


@pytest.mark.parametrize("name,line,message", [(name, line, message) for name, _, line, message in VIOLATIONS if line])
def test_a_violation_is_found(found, name, line, message):
    assert any(each.startswith(f"{name}:{line}: ") and message in each for each in found), [each for each in found if each.startswith(name)]


def test_other_texts_are_accepted(found):
    expected = {name for name, _, line, _ in VIOLATIONS if line}
    assert [] == [each for each in found[:-1] if each.split(":")[0] not in expected]
    assert re.fullmatch(rf"style violations: {len(found) - 1}; checked files: \d+", found[-1])


def test_given_files_are_checked_alone(repository, found):
    done = check(repository, "launcher", "README.md")
    assert done.returncode == 1
    assert done.stdout.splitlines()[:-1] == [each for each in found if each.startswith(("launcher/", "README.md:"))]
    assert check(repository, "launcher/accepted.cpp").returncode == 0
    assert check(repository, "nowhere").returncode == 2


def test_a_report_succeeds(repository):
    done = check(repository, "--report", "launcher/name.cpp")
    assert done.returncode == 0
    assert '     2 name: "goes on"' in done.stdout.splitlines()


def test_lines_of_code_and_comments_are_counted(tmp_path):
    sys.path.insert(0, str(CHECK.parent))
    try:
        import lines
    finally:
        sys.path.remove(str(CHECK.parent))
    code = '// One.\n\nint a;  // behind code\n/* Two\n\n lines. */\nauto b = "// no comment";\nauto c = R"(\n// no comment\n)";\n'
    assert lines.count(code, "cpp") == lines.Count(1, 5, 3)
    code = '#!/usr/bin/env python3\n"""A docstring\n\nof two lines."""\n\n\ndef f():\n    """One."""\n    return """\n# no comment\n"""  # behind code\n'
    assert lines.count(code, "python") == lines.Count(1, 4, 4)
