// Implementation of check.hpp.
#include "common/base/check.hpp"

#include <string>
#include <string_view>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

// Compilers name files by the path on their command line; messages show the path in the repository.
std::string_view in_repository(std::string_view file) {
  constexpr std::string_view kThisFile = __FILE__;
  constexpr std::string_view kOurName = "common/base/check.cpp";
  if (!kThisFile.ends_with(kOurName)) return file;
  const std::string_view root = kThisFile.substr(0, kThisFile.size() - kOurName.size());
  return file.starts_with(root) ? file.substr(root.size()) : file;
}

}  // namespace

void check_failed(const char* sentence, const char* file, int line) {
  throw InternalError("internal error at " + std::string(in_repository(file)) + ":" + std::to_string(line) + ": " + sentence +
                      "; this is a bug in ddprun, please report it with this line");
}

}  // namespace ddprun
