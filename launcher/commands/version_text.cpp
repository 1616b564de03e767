#include "launcher/commands/version_text.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "common/base/printable.hpp"
#include "common/base/version.hpp"
#include "launcher/machine/detect.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxBytes = 64U << 20;  // larger files are not read; ddptrain has 4 MB

// Returns for example "2.11.0". Returns nullopt if the file does not contain the version. Custom programs and old builds do
// not contain it.
std::optional<std::string> libtorch_of(const fs::path& program) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(program, error);
  if (error || size > kMaxBytes) return std::nullopt;
  std::ifstream file(program, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  const std::string mark = DDPRUN_LIBTORCH_MARK;
  const std::size_t found = bytes.find(mark);
  if (found == std::string::npos) return std::nullopt;
  const std::size_t begin = found + mark.size();
  const std::size_t end = bytes.find('\0', begin);
  if (end == std::string::npos || end - begin > 40) return std::nullopt;
  return printable(bytes.substr(begin, end - begin));
}

std::string trainer_line() {
  const Machine machine = this_machine();
  auto program = machine.next_to_self("ddptrain");
  if (!program) program = machine.on_path("ddptrain");
  if (!program) return "not found";
  const auto libtorch = libtorch_of(*program);
  return (libtorch ? "built with LibTorch " + *libtorch : "built with an unknown version of LibTorch") + ", " +
         printable(program->string());
}

}  // namespace

std::string version_text() {
  return "ddprun " + version_and_commit() + "\nprotocol of agents: " + std::to_string(rendezvous::kProtocolVersion) +
         "\nddptrain: " + trainer_line() + "\n";
}

}  // namespace ddprun
