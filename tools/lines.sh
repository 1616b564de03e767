# shellcheck shell=bash
# ./dev lines: counts lines of code and of comments.

command_lines() { python3 tests/style/lines.py "$@"; }
