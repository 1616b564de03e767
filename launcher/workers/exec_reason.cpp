// Implementation of exec_reason.hpp.
#include "launcher/workers/exec_reason.hpp"

#include <cerrno>
#include <fstream>

#include "common/base/printable.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// The kernel also reads only this much of the file (BINPRM_BUF_SIZE).
std::string first_line(const fs::path& file) {
  constexpr std::size_t kMostBytes = 256;
  std::ifstream in(file, std::ios::binary);
  std::string text(kMostBytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text.substr(0, text.find('\n'));
}

// The interpreter's path, such as "/usr/bin/env" for "#! /usr/bin/env python3". Empty if the line names no interpreter.
std::string interpreter_in(const std::string& line) {
  if (!line.starts_with("#!")) return "";
  const std::size_t begin = line.find_first_not_of(" \t", 2);
  return begin == std::string::npos ? "" : line.substr(begin, line.find_first_of(" \t", begin) - begin);
}

}  // namespace

std::string reason_of_exec_error(int error, const fs::path& program) {
  std::error_code ignored;
  if (!fs::is_regular_file(program, ignored)) return "";
  const std::string line = first_line(program);
  const std::string interpreter = interpreter_in(line);
  switch (error) {
    case ENOENT:
      if (line.starts_with("\177ELF")) return "its loader is not on this machine: it was built for another system";
      if (interpreter.ends_with('\r'))
        return "its lines end as on Windows, so the kernel looks for '" + printable(interpreter) +
               "': tr -d '\\r' makes a file without";
      return interpreter.empty() ? "" : "its first line names '" + printable(interpreter) + "', which is not there";
    case EACCES:
      if (!interpreter.empty() && fs::is_directory(interpreter, ignored))
        return "its first line names '" + printable(interpreter) + "', which is a folder";
      return "it, or what its first line names, has no x permission, or its file system is mounted noexec";
    case ENOEXEC:
      return "it is neither a program for this machine nor a script that begins with #!";
    default:
      return "";
  }
}

}  // namespace ddprun
