#include "rendezvous/protocol/job_end.hpp"

#include <utility>

#include "common/base/exit_code.hpp"

namespace ddprun::rendezvous {
namespace {

JobEnd with(ExitCode code, std::string why) {
  return {static_cast<int>(code), std::move(why)};
}

JobEnd by_signal(int signal, std::string why) {
  return {128 + signal, std::move(why)};
}

std::string stopped_by(int signal) {
  return "stopped by signal " + std::to_string(signal);
}

}  // namespace

namespace job_end {

JobEnd done() {
  return with(ExitCode::kDone, "done");
}

JobEnd too_few_nodes(std::string why) {
  return with(ExitCode::kPeersMissing, std::move(why));
}

JobEnd after_failure(const Verdict& verdict) {
  return {verdict.exit_code, verdict.end()};
}

JobEnd after_failure_and_save(const Verdict& verdict) {
  const std::string why = verdict.end() + "; the state held by the other workers is saved";
  if (!verdict.preempted_once_saved) return {verdict.exit_code, why};
  return with(ExitCode::kPreempted, why + ": run it again to continue");
}

JobEnd stopped(int signal) {
  return by_signal(signal, stopped_by(signal));
}

JobEnd stopped_without_saving(int signal, const std::string& why) {
  return by_signal(signal, stopped_by(signal) + " without saving: " + why);
}

JobEnd stopped_and_saved(int signal, bool all_saved) {
  return all_saved ? with(ExitCode::kPreempted, stopped_by(signal) + " after saving")
                   : by_signal(signal, stopped_by(signal) + " before all workers could save");
}

Verdict stopped_while_waiting(int signal, const std::string& why) {
  return {.exit_code = 128 + signal, .why = stopped_by(signal) + ": " + why};
}

}  // namespace job_end

namespace node_end {

JobEnd left(int signal) {
  return by_signal(signal, "stopped by a signal");
}

JobEnd left_after_order_to_save(int signal, bool saved) {
  return saved ? with(ExitCode::kPreempted, "stopped by a signal after saving")
               : by_signal(signal, "stopped by a signal before it could save");
}

JobEnd refused_by_coordinator(const std::string& text) {
  return with(ExitCode::kUsage, "the coordinator refused this node: " + text);
}

JobEnd no_coordinator(const std::string& seconds) {
  return with(ExitCode::kPeersMissing, "no coordinator answered for " + seconds);
}

JobEnd minority(std::string why) {
  return with(ExitCode::kMinority, std::move(why));
}

JobEnd wrong_token(std::string why) {
  return with(ExitCode::kTokenRefused, std::move(why));
}

JobEnd wrong_usage(std::string why) {
  return with(ExitCode::kUsage, std::move(why));
}

JobEnd no_peers(std::string why) {
  return with(ExitCode::kPeersMissing, std::move(why));
}

}  // namespace node_end

}  // namespace ddprun::rendezvous
