// `ddprun init cpp FOLDER`: creates a project for a custom worker program, and prints how to build it.
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/system/print.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/custom_worker/new_project.hpp"
#include "launcher/options/shell_quoted.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// Returns the CMake option that a project needs to find an installed ddprun, such as "  -DCMAKE_PREFIX_PATH=/home/ann/.local".
// The text is empty if this program was not installed with `cmake --install`.
std::string prefix_option() {
  std::error_code error;
  const fs::path prefix = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
  if (error || !fs::exists(prefix / "lib/cmake/ddprun/ddprunConfig.cmake", error)) return "";
  return " -DCMAKE_PREFIX_PATH=" + shell_quoted(prefix.string());
}

}  // namespace

int init_project(const SubcommandArguments& arguments) {
  const std::vector<std::string>& words = arguments.words();
  if (!words.empty() && words[0] != "cpp") {
    arguments.refuse("init: unknown kind of project '" + printable(words[0]) + "', expected cpp");
  }
  if (words.size() != 2 || words[1].empty()) throw UsageError(arguments.usage());
  std::string files;
  for (const std::string& name : write_new_project(words[1])) files += (files.empty() ? "" : ", ") + name;
  const std::string option = prefix_option();
  print("created " + printable(words[1]) + " with " + files + "\nnext: cd " + shell_quoted(words[1]) +
        " && cmake -S . -B build" + (option.empty() ? " -DCMAKE_PREFIX_PATH=<folder in which ddprun is installed>" : option) +
        " && cmake --build build && ddprun train.json\n");
  return 0;
}

}  // namespace ddprun
