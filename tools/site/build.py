#!/usr/bin/env python3
"""Builds the docs as a searchable site with versions: `./dev site` runs it.

    ./dev site                      this tree, as the version of CMakeLists.txt
    ./dev site --version 0.2        another name
    ./dev site --from v0.1.0        the docs of a commit or a tag

Each version is a folder of build-site/html, with its own search. versions.json lists them, and the pages' menu reads that file. The start page leads to
the newest one. To publish the site, copy that folder to any web server; versions that are there already stay if versions.json has them.

The build fails if a page has a broken link: mkdocs checks pages, and then link_check.py checks the finished files.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import link_check
import pages

ROOT = pathlib.Path(__file__).resolve().parents[2]


def version_of(root: pathlib.Path) -> str:
    return re.search(r"^project\(ddprun VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text(encoding="utf-8"), re.M)[1]


def extract(commit: str, to: pathlib.Path) -> None:
    """Writes all files of a commit to the folder `to`. Source files are included, because links to them are checked, too."""
    archive = subprocess.run(["git", "-C", ROOT, "archive", commit], capture_output=True, check=False)
    if archive.returncode != 0:
        sys.exit(f"dev: site: git has no files of '{commit}': {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", to], input=archive.stdout, check=True)


def repository_address(commit: str) -> str:
    """Returns the web address of the repository's files, from the variables of a hosted workflow. The address is empty if
    unknown."""
    server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    return f"{server}/{name}/blob/{commit}" if server and name else ""


def build(root: pathlib.Path, work: pathlib.Path, to: pathlib.Path, source_address: str) -> int:
    """Writes the site of the repository in `root` to the folder `to`. Returns the number of pages."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    found = pages.collect(root, work / "pages", source_address)
    settings = {"INHERIT": str(ROOT / "tools/site/mkdocs.yml"), "docs_dir": str(work / "pages"), "site_dir": str(to), "nav": pages.navigation(root, found)}
    (work / "mkdocs.yml").write_text(json.dumps(settings, indent=1), encoding="utf-8")  # YAML includes JSON
    # --quiet would drop warnings before --strict counts them.
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "-f", work / "mkdocs.yml"], check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    if done.returncode != 0:
        sys.stderr.write("".join(line for line in done.stdout.splitlines(keepends=True) if not line.startswith("INFO")))
        sys.exit("dev: site: mkdocs found the problems above; correct these pages and run ./dev site again")
    return len(found)


def order(version: str) -> tuple:
    """Returns the sort key of a version: its numbers. A name without a number is sorted last."""
    return tuple(int(number) for number in re.findall(r"\d+", version)) if re.match(r"v?\d", version) else ()


def list_versions(site: pathlib.Path) -> list[str]:
    """Writes versions.json, and the start page, which redirects to the newest version. Returns all versions, the newest
    first."""
    versions = sorted((page.parent.name for page in site.glob("*/index.html")), key=order, reverse=True)
    listed = [{"version": version, "title": version, "aliases": ["latest"] if version == versions[0] else []} for version in versions]
    (site / "versions.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    (site / "index.html").write_text(f'<!doctype html>\n<meta charset="utf-8">\n<title>ddprun</title>\n<meta http-equiv="refresh" content="0; url={versions[0]}/">\n'
                                     f'<a href="{versions[0]}/">ddprun {versions[0]}</a>\n', encoding="utf-8")
    return versions


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev site", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", help="name of the version (default: that of CMakeLists.txt)")
    parser.add_argument("--from", dest="commit", metavar="COMMIT", help="build the docs of this commit (default: the files of this folder)")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build-site/html", help="folder of the site (build-site/html)")
    arguments = parser.parse_args()
    if arguments.version and not re.fullmatch(r"[\w.-]+", arguments.version):
        parser.error(f"--version {arguments.version}: expected letters, digits, dots and dashes")
    with tempfile.TemporaryDirectory() as folder:
        root = ROOT
        if arguments.commit:
            root = pathlib.Path(folder)
            extract(arguments.commit, root)
        version = arguments.version or version_of(root)
        to = arguments.output.resolve() / version
        try:
            count = build(root, ROOT / "build-site/work", to, repository_address(arguments.commit or os.environ.get("GITHUB_SHA", "HEAD")))
        except ValueError as problem:
            sys.exit(f"dev: site: {problem}")
    checked, broken, loaded = link_check.check(to)
    for each in [*broken, *loaded]:
        print(each, file=sys.stderr)
    versions = list_versions(arguments.output)
    print(f"{count} pages, {checked} links, {len(broken)} broken, {len(loaded)} files from the network; versions: {', '.join(versions)}")
    print(f"To read it: python3 -m http.server --bind 127.0.0.1 --directory {os.path.relpath(arguments.output)} 8000")
    sys.exit(1 if broken or loaded else 0)


if __name__ == "__main__":
    main()
