// `ddprun init cpp FOLDER`: creates a project for a custom worker program, and prints how to build it.
#include <filesystem>
#include <string>
#include <system_error>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/system/print.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/options/shell_quoted.hpp"
#include "launcher/own_worker/new_project.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInitUsage = "usage: ddprun init cpp FOLDER";

// The option for a program installed by `cmake --install`: " -DCMAKE_PREFIX_PATH=/home/ann/.local". Empty for any other
// program.
std::string prefix_option() {
  std::error_code error;
  const fs::path prefix = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
  if (error || !fs::exists(prefix / "lib/cmake/ddprun/ddprunConfig.cmake", error)) return "";
  return " -DCMAKE_PREFIX_PATH=" + shell_quoted(prefix.string());
}

}  // namespace

int init_project(std::span<const std::string> args) {
  if (args.size() == 1 && (args[0] == "--help" || args[0] == "-h")) {
    print(std::string(kInitUsage) +
          "\nWrites a project of four files for a worker program of yours in C++: data, model and loss, a train.json, how to\n"
          "build it. It trains as it is. FOLDER is new or empty; its name becomes the program's.\n");
    return 0;
  }
  if (!args.empty() && args[0] != "cpp") {
    throw UsageError("init: there are projects of the kind cpp only, found '" + printable(args[0]) + "'; " + kInitUsage);
  }
  if (args.size() != 2 || args[1].empty() || args[1].starts_with("-")) throw UsageError(kInitUsage);
  std::string files;
  for (const std::string& name : write_new_project(args[1])) files += (files.empty() ? "" : ", ") + name;
  const std::string option = prefix_option();
  print("made " + printable(args[1]) + " with " + files + "\nnext: cd " + shell_quoted(args[1]) + " && cmake -S . -B build" +
        (option.empty() ? " -DCMAKE_PREFIX_PATH=<where ddprun was installed with cmake --install>" : option) +
        " && cmake --build build && ddprun train.json\n");
  return 0;
}

}  // namespace ddprun
