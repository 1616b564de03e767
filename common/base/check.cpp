#include "common/base/check.hpp"

#include <string>
#include <string_view>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

// Returns the path of a source file relative to the repository. __FILE__ is the path from the compiler's command line, so it
// may be absolute.
std::string_view in_repository(std::string_view file) {
  constexpr std::string_view kThisFile = __FILE__;
  constexpr std::string_view kRelativePath = "common/base/check.cpp";
  if (!kThisFile.ends_with(kRelativePath)) return file;
  const std::string_view root = kThisFile.substr(0, kThisFile.size() - kRelativePath.size());
  return file.starts_with(root) ? file.substr(root.size()) : file;
}

}  // namespace

void check_failed(const char* sentence, const char* file, int line) {
  throw InternalError("internal error at " + std::string(in_repository(file)) + ":" + std::to_string(line) + ": " + sentence +
                      "; this is a bug in ddprun: report it with this line");
}

}  // namespace ddprun
