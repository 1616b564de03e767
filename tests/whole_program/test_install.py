"""Tests of `cmake --install`: the installed folder can be moved, the links in its documents have targets, and the target
`uninstall` removes all files."""

import os
import pathlib
import re
import shutil
import subprocess

import jobs
import pytest


def cmake(*words, **environment: str) -> str:
    done = subprocess.run(["cmake", *map(str, words)], capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def build(ddprun_bin, tmp_path):
    """Returns the build folder. The user may have installed ddprun from this folder, and may still need the file
    install_manifest.txt of that installation. So install() moves the manifest that it creates out of the folder."""
    folder = ddprun_bin.parent.parent
    if not (folder / "cmake_install.cmake").exists() or not (folder / "pages").exists():
        pytest.skip(f"{folder} is not a build folder that can be installed from")
    return folder


def install(build: pathlib.Path, prefix: pathlib.Path) -> list[str]:
    """Installs the build in `prefix` and returns the paths of the installed files. The manifest is moved to a folder next to
    `prefix`, where the target `uninstall` reads it."""
    mine = prefix.parent / "build"
    mine.mkdir()
    shutil.copy(build / "cmake_install.cmake", mine)
    cmake("-DCMAKE_INSTALL_PREFIX=" + str(prefix), "-P", build / "cmake_install.cmake")
    manifest = build / "install_manifest.txt"
    shutil.move(manifest, mine / manifest.name)
    return (mine / manifest.name).read_text().splitlines()


def test_an_installation_can_be_moved_and_removed(build, run, tmp_path):
    prefix = tmp_path / "first" / "prefix"
    prefix.parent.mkdir()
    installed = install(build, prefix)
    for name in ("bin/ddprun", "lib/ddprun/libddprun_tls.so", "share/man/man1/ddprun.1", "share/bash-completion/completions/ddprun",
                 "share/zsh/site-functions/_ddprun", "share/fish/vendor_completions.d/ddprun.fish", "share/doc/ddprun/LICENSE"):
        assert (prefix / name).is_file() and str(prefix / name) in installed, name

    moved = tmp_path / "moved"
    shutil.copytree(prefix, moved, symlinks=True)
    (tmp_path / "hello.py").write_text("import os; print('rank', os.environ['RANK'])\n")
    done = run([moved / "bin/ddprun", "--standalone", "--nproc-per-node", 2, tmp_path / "hello.py"])
    assert done.returncode == 0 and sorted(done.stdout.splitlines()) == ["rank 0", "rank 1"], done.stderr
    if (moved / "bin/ddptrain").exists():
        data = jobs.write_small_dataset(tmp_path / "data")
        config = jobs.write_config(tmp_path / "train.json", jobs.config(data, epochs=1, max_steps=2))
        done = run([moved / "bin/ddprun", "--run-dir", tmp_path / "run", config])
        assert done.returncode == 0, done.stderr

    (tmp_path / "hello.py").write_text("import ddprun; ddprun.step(1); print(ddprun.__file__, ddprun.in_job())\n")
    package = prefix / "share/ddprun/python"
    done = run([prefix / "bin/ddprun", "--standalone", tmp_path / "hello.py"], PYTHONPATH=str(package), PYTHONDONTWRITEBYTECODE="")
    assert done.returncode == 0 and done.stdout == f"{package}/ddprun/__init__.py True\n", done
    assert (package / "ddprun/__pycache__").exists()

    (prefix / "share/doc/other").mkdir()
    (prefix / "share/doc/other/README").write_text("another package's")
    cmake(f"-DBUILD={prefix.parent / 'build'}", "-P", pathlib.Path(__file__).parents[2] / "cmake/Uninstall.cmake")
    left = sorted(str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir() or path.is_symlink())
    assert left == ["share/doc/other/README"]
    assert not (prefix / "bin").exists() and not (prefix / "lib").exists() and not (prefix / "share/man").exists()
    assert not package.exists()


def test_links_of_installed_documents_have_targets(build, tmp_path):
    prefix = tmp_path / "prefix"
    install(build, prefix)
    documents = prefix / "share/doc/ddprun"
    dead = []
    for page in documents.rglob("*.md"):
        if "internals" in page.parts or page.name == "CONTRIBUTING.md":
            continue  # not checked, because these pages link to source files, which are not installed
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            if not re.match(r"\w+:", link) and not os.path.exists(page.parent / link):
                dead.append(f"{page.relative_to(documents)}: {link}")
    assert dead == []


def test_the_installed_completion_of_zsh_is_found_by_compinit(build, ddprun_bin, tmp_path):
    if not shutil.which("zsh"):
        pytest.skip("zsh is not installed")
    prefix = tmp_path / "prefix"
    install(build, prefix)
    script = (f"fpath=({prefix}/share/zsh/site-functions $fpath); autoload -Uz compinit; compinit -D -u; "
              "print -r -- ${_comps[ddprun]}; autoload +X -Uz _ddprun && whence -w _ddprun")
    done = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["_ddprun", "_ddprun: function"], done.stdout + done.stderr
