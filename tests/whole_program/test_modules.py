"""Tests of the rules for modules: the allowed includes, the symbols that a pure module may use, and the page that lists the
modules. Each test violates a rule, and the build's check must report the violation."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", ROOT / "build"))


def script(name, **values):
    definitions = [f"-D{key}={value}" for key, value in values.items()]
    return subprocess.run(["cmake", *definitions, "-P", str(ROOT / "cmake" / name)], capture_output=True, text=True, timeout=120)


def tree(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    modules = folder / "modules.txt"
    of = {module: " ".join(name for name in files if name.startswith(module)) for module in ("top/low", "top/high")}
    modules.write_text(f"top/low||TRUE|the lower one|{of['top/low']}\ntop/high|top/low|FALSE|the upper one|{of['top/high']}\nway|top/high|||\n")
    return {"MODULES": modules, "SOURCES": folder}


def test_allowed_includes_are_accepted(tmp_path):
    checked = script("CheckModules.cmake", **tree(tmp_path, {"top/low/a.hpp": "", "top/high/b.cpp": '#include "top/low/a.hpp"\n'}))
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("files, message", [
    ({"top/low/a.cpp": '#include "top/high/b.hpp"\n', "top/high/b.hpp": '#include "top/low/a.hpp"\n'},
     "top/low/a.cpp includes top/high/b.hpp, but the module top/low uses only"),
    ({"top/high/b.cpp": '#include "top/low/a.hpp"\n#include "elsewhere/c.hpp"\n'},
     "top/high/b.cpp includes elsewhere/c.hpp, which is in no module"),
    ({"top/high/b.cpp": ""}, "the module top/high declares that it uses top/low, but none of its files includes a header of it"),
])
def test_a_forbidden_include_stops_the_build(tmp_path, files, message):
    checked = script("CheckModules.cmake", **tree(tmp_path, files))
    assert checked.returncode != 0
    assert message in checked.stderr


def archive(folder, text):
    source = folder / "module.cpp"
    source.write_text(text)
    subprocess.run(["c++", "-std=c++20", "-c", str(source), "-o", str(folder / "module.o")], check=True, timeout=120)
    subprocess.run(["ar", "rcs", str(folder / "module.a"), str(folder / "module.o")], check=True, timeout=60)
    return {"LINKER": "ld", "NM": "nm", "ARCHIVES": folder / "module.a", "OBJECT": folder / "pure.o"}


def test_a_module_without_system_calls_is_pure(tmp_path):
    # In glibc 2.38 and later versions, strtoll is linked under this name. Because of the explicit declaration, the test does
    # not depend on the glibc of this machine.
    text = "#include <map>\n#include <stdexcept>\n#include <string>\n" \
           "extern \"C\" long long __isoc23_strtoll(const char*, char**, int);\n" \
           "long long g(const char* text) { return __isoc23_strtoll(text, nullptr, 10); }\nint f(std::map<std::string, int>& m) {\n" \
           "  if (m.empty()) throw std::runtime_error(\"nothing\");\n  return m[std::to_string(7)];\n}\n"
    checked = script("CheckPurity.cmake", **archive(tmp_path, text))
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("text, symbol", [
    ("#include <chrono>\nauto f() { return std::chrono::steady_clock::now(); }\n", "std::chrono::_V2::steady_clock::now()"),
    ("#include <chrono>\nauto f() { return std::chrono::system_clock::now(); }\n", "std::chrono::_V2::system_clock::now()"),
    ("#include <unistd.h>\nauto f() { return ::getpid(); }\n", "getpid"),
    ("#include <sys/socket.h>\nauto f() { return ::socket(AF_INET, SOCK_STREAM, 0); }\n", "socket"),
    ("#include <cstdlib>\nauto f() { return std::getenv(\"HOME\"); }\n", "getenv"),
    ("#include <fstream>\nvoid f() { std::ifstream in(\"x\"); in.get(); }\n", "std::basic_ifstream"),
    ("#include <filesystem>\nbool f() { return std::filesystem::exists(\"x\"); }\n", "std::filesystem::status("),
    ("#include <thread>\nvoid f() { std::thread([] {}).join(); }\n", "std::thread::join()"),
    ("#include <iostream>\nvoid f() { std::cout << 1; }\n", "std::cout"),
    ("int of_another_module();\nint f() { return of_another_module(); }\n", "of_another_module()"),
])
def test_a_module_with_system_calls_is_not_pure(tmp_path, text, symbol):
    checked = script("CheckPurity.cmake", **archive(tmp_path, text))
    assert checked.returncode != 0
    assert symbol in checked.stderr


def test_the_module_page_is_up_to_date():
    modules = BUILD / "modules.txt"
    if "trainer/" not in modules.read_text():
        pytest.skip("a build without the trainer knows only some of the modules")
    page = ROOT / "docs" / "internals" / "modules.md"
    checked = subprocess.run(["python3", str(ROOT / "cmake" / "modules_page.py"), str(modules), "--check", str(page)],
                             capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr


def test_pure_modules_were_linked_alone():
    assert (BUILD / "pure_modules.o").stat().st_size > 100_000
