#include "launcher/commands/version_text.hpp"

#include "common/base/printable.hpp"
#include "common/base/version.hpp"
#include "launcher/doctor/libtorch_version.hpp"
#include "launcher/machine/detect.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun {
namespace {

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
