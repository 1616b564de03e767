"""The rooms: the allowed includes, the symbols that a pure room may need, and the page that lists them. Each check of the build is also shown to fail
on a violation."""

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
    rooms = folder / "rooms.txt"
    rooms.write_text("top/low||TRUE|the one below\ntop/high|top/low|FALSE|the one above\nway|top/high||\n")
    return {"ROOMS": rooms, "SOURCES": folder}


def test_what_a_room_may_include_is_let_through(tmp_path):
    checked = script("CheckRooms.cmake", **tree(tmp_path, {"top/low/a.hpp": "", "top/high/b.cpp": '#include "top/low/a.hpp"\n'}))
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("files, says", [
    ({"top/low/a.cpp": '#include "top/high/b.hpp"\n', "top/high/b.hpp": '#include "top/low/a.hpp"\n'},
     "top/low/a.cpp includes top/high/b.hpp, but the room top/low uses only"),
    ({"top/high/b.cpp": '#include "top/low/a.hpp"\n#include "elsewhere/c.hpp"\n'},
     "top/high/b.cpp includes elsewhere/c.hpp, which is in no room"),
    ({"top/high/b.cpp": ""}, "the room top/high says that it uses top/low, but no file of it includes one of that room"),
])
def test_an_include_against_the_arrows_stops_the_build(tmp_path, files, says):
    checked = script("CheckRooms.cmake", **tree(tmp_path, files))
    assert checked.returncode != 0
    assert says in checked.stderr


def archive(folder, text):
    source = folder / "room.cpp"
    source.write_text(text)
    subprocess.run(["c++", "-std=c++20", "-c", str(source), "-o", str(folder / "room.o")], check=True, timeout=120)
    subprocess.run(["ar", "rcs", str(folder / "room.a"), str(folder / "room.o")], check=True, timeout=60)
    return {"LINKER": "ld", "NM": "nm", "ARCHIVES": folder / "room.a", "OBJECT": folder / "pure.o"}


def test_a_room_that_computes_is_pure(tmp_path):
    # strtoll, under its name since glibc 2.38, whatever version this machine has.
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
    ("int of_another_room();\nint f() { return of_another_room(); }\n", "of_another_room()"),
])
def test_a_room_that_looks_at_the_world_is_not(tmp_path, text, symbol):
    checked = script("CheckPurity.cmake", **archive(tmp_path, text))
    assert checked.returncode != 0
    assert symbol in checked.stderr


def test_the_page_of_the_rooms_is_what_they_are():
    rooms = BUILD / "rooms.txt"
    if "trainer/" not in rooms.read_text():
        pytest.skip("a build without the trainer knows only some of the rooms")
    page = ROOT / "docs" / "internals" / "rooms.md"
    checked = subprocess.run(["python3", str(ROOT / "cmake" / "rooms_page.py"), str(rooms), "--check", str(page)],
                             capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr


def test_the_pure_rooms_of_this_build_were_linked_alone():
    assert (BUILD / "pure_rooms.o").stat().st_size > 100_000
