// Implementation of new_project.hpp. The files are those of sdk/project, where @NAME@ stands for the name.
#include "launcher/own_worker/new_project.hpp"

#include <ddprun_project_files.hpp>  // written by cmake/ProjectFiles.cmake

#include <algorithm>
#include <string_view>
#include <system_error>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/system/atomic_file.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPlaceholder = "@NAME@";

// For CMake, for a file and for the config's `name` alike.
bool is_program_name(const std::string& name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return !name.empty() && name.size() <= 60 && is_letter(name.front()) && std::all_of(name.begin(), name.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

std::string with_name(std::string_view text, const std::string& name) {
  std::string out;
  for (std::size_t at = text.find(kPlaceholder); at != std::string_view::npos; at = text.find(kPlaceholder)) {
    out += std::string(text.substr(0, at)) + name;
    text.remove_prefix(at + kPlaceholder.size());
  }
  return out + std::string(text);
}

}  // namespace

std::vector<std::string> write_new_project(const fs::path& folder) {
  const fs::path normal = fs::absolute(folder).lexically_normal();
  const std::string name = (normal.has_filename() ? normal : normal.parent_path()).filename().string();
  const std::string shown = printable(folder.string());
  if (!is_program_name(name)) {
    throw UsageError(
        "init: expected a folder whose name is one for a program: letters, digits, '_' and '-', beginning with a "
        "letter; found '" +
        printable(name) + "'");
  }
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (fs::exists(status) && !fs::is_directory(status)) throw UsageError("init: " + shown + " is a file, expected a new folder");
  if (fs::exists(status) && (!fs::is_empty(folder, error) || error)) {
    throw UsageError("init: " + shown + (error ? " can't be read: " + error.message() : " has files in it") +
                     "; name a new folder or an empty one");
  }
  fs::create_directories(folder, error);
  if (error) throw UsageError("init: can't make " + shown + ": " + error.message());
  std::vector<std::string> names;
  try {
    for (const auto& [file, text] : kProjectFiles) {
      write_file_atomically(folder / file, with_name(text, name));
      names.emplace_back(file);
    }
  } catch (const std::system_error& failed) {
    throw UsageError(std::string("init: ") + failed.what());
  }
  return names;
}

}  // namespace ddprun
