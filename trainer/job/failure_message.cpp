#include "trainer/job/failure_message.hpp"

#include "common/system/realtime.hpp"

namespace ddprun::trainer {

void send_failure(AgentChannel& agent, const Failure& failure, const Status& status, const std::string& device,
                  channel::Shrink shrinking) {
  channel::WorkerError report;
  report.kind = failure.kind;
  report.message = failure.message;
  report.device = device;
  report.step = status.step();
  report.phase = status.phase();
  report.bytes_asked = failure.bytes_asked;
  report.bytes_free = failure.bytes_free;
  report.time_ns = realtime_ns();
  report.exit_code = failure.exit_code;
  report.shrink = shrinking;
  report.others_suspect = failure.others_suspect;
  agent.send(report);
}

}  // namespace ddprun::trainer
