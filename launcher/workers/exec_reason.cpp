#include "launcher/workers/exec_reason.hpp"

#include <cerrno>
#include <fstream>

#include "common/base/printable.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// Returns the first line of the file, at most 256 bytes. The kernel reads no more of it (BINPRM_BUF_SIZE).
std::string first_line(const fs::path& file) {
  constexpr std::size_t kMaxHeader = 256;
  std::ifstream in(file, std::ios::binary);
  std::string text(kMaxHeader, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text.substr(0, text.find('\n'));
}

// Returns the interpreter's path, for example "/usr/bin/env" for "#! /usr/bin/env python3". The result is empty if the line
// names no interpreter.
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
      if (line.starts_with("\177ELF"))
        return "its dynamic loader does not exist on this machine: it was built for another system";
      if (interpreter.ends_with('\r'))
        return "it has Windows newlines (CR LF), so the kernel searches for the interpreter '" + printable(interpreter) +
               "': remove the CRs with tr -d '\\r'";
      return interpreter.empty() ? "" : "its first line names '" + printable(interpreter) + "', which does not exist";
    case EACCES:
      if (!interpreter.empty() && fs::is_directory(interpreter, ignored))
        return "its first line names '" + printable(interpreter) + "', which is a folder";
      return "it or the interpreter in its first line is not executable (chmod +x), or its file system is mounted noexec";
    case ENOEXEC:
      return "it is neither a program for this machine nor a script that starts with #!";
    default:
      return "";
  }
}

}  // namespace ddprun
