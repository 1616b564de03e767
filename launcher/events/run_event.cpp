// Implements the names of events that users and the report show.
#include "launcher/events/run_event.hpp"

#include <algorithm>

#include "common/base/check.hpp"
#include "launcher/events/printf_text.hpp"

namespace ddprun {

std::string ranks_text(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > kShown) text += " and " + std::to_string(ranks.size() - kShown) + " more";
  return text;
}

std::string describe(const CutOff& event) {
  return printed("no answer from the coordinator for %.1f s: ", event.seconds) +
         "the workers of this node were stopped, since the other nodes may have continued without it";
}

std::string describe(const StopIsSlow& event) {
  std::string text;
  if (event.first) {
    text = "rank " + std::to_string(event.first->rank) + " (pid " + std::to_string(event.first->pid) +
           ") failed: " + describe_failure(*event.first) + "; ";
  }
  text += printed("the workers were ordered to stop %.0f s ago; still waiting for:", event.seconds);
  for (const StopIsSlow::Awaited& one : event.awaited) {
    text += " rank " + std::to_string(one.rank) + " (pid " + std::to_string(one.pid) + ")";
    if (!one.summary.empty()) text += " in " + one.summary;
    text += one.pid == event.awaited.back().pid ? "" : ";";
  }
  return text;
}

std::string describe(const WorkersLeft& event) {
  const bool one = event.ended.size() == 1;
  return ranks_text(event.ended) + (one ? " ended" : " have ended") + " with exit code 0, " + (one ? "" : "the first ") +
         printed("%.0f s ago, and ", event.seconds) + ranks_text(event.running) +
         (event.running.size() == 1 ? " still runs, perhaps waiting for " : " still run, perhaps waiting for ") +
         (one ? "it" : "them");
}

std::string describe(const LeftoversFound& event) {
  constexpr std::size_t kMaxNamed = 8;
  std::string names;
  for (std::size_t i = 0; i < event.processes.size() && i < kMaxNamed; ++i) names += (i == 0 ? "" : "; ") + event.processes[i];
  if (event.processes.size() > kMaxNamed) names += "; and " + std::to_string(event.processes.size() - kMaxNamed) + " more";
  if (event.what == LeftoversFound::What::kAwaited) {
    return "rank " + std::to_string(event.rank) +
           " ended with exit code 0, but a process that it started is still running: the job continues until process " + names +
           " ends";
  }
  const bool one = event.processes.size() == 1;
  return (one ? std::string("a process that a worker left behind was ended: ")
              : std::to_string(event.processes.size()) + " processes that workers left behind were ended: ") +
         names;
}

const char* name_of(StragglerKind kind) {
  switch (kind) {
    case StragglerKind::kProcessor:
      return "processor";
    case StragglerKind::kDisk:
      return "disk";
    case StragglerKind::kData:
      return "data";
    case StragglerKind::kNetwork:
      return "network";
    case StragglerKind::kCompute:
      return "compute";
  }
  check_failed("unknown kind of a straggler");
}

std::string describe(const Straggler& event) {
  const auto ms = [](double seconds) { return printed(seconds < 0.01 ? "%.1f ms" : "%.0f ms", seconds * 1000); };
  const std::string steps = " in steps " + std::to_string(event.from_step) + " to " + std::to_string(event.step);
  if (event.kind == StragglerKind::kNetwork) {
    if (event.ended) return "network: communication between the ranks is as fast as before" + steps;
    return "network: communication between the ranks takes " + ms(event.own_s) + " per step" + steps + ", previously " +
           ms(event.others_s) +
           (event.rank < 0
                ? "; no rank computes longer"
                : "; the link of rank " + std::to_string(event.rank) + "'s node is slow: a network round trip takes " +
                      ms(event.round_trip_s) + ", between other nodes " + ms(event.others_round_trip_s));
  }
  std::string text = "rank " + std::to_string(event.rank);
  if (event.pid > 0) text += " (pid " + std::to_string(event.pid) + ")";
  if (event.ended) return text + " no longer keeps the others waiting" + steps;
  text += " keeps the others waiting: its own work takes " + ms(event.own_s) + " per step, that of the others " +
          ms(event.others_s) + "," + steps;
  switch (event.kind) {
    case StragglerKind::kProcessor:
      return text + "; processor: for " + ms(event.part_s) + " of this time, the rank was stopped or waited for a processor";
    case StragglerKind::kDisk:
      return text + "; disk: it waited for a disk for " + ms(event.part_s) + " of this time";
    case StragglerKind::kData:
      return text + "; data: it waited for its next batch for " + ms(event.part_s) + " of this time";
    case StragglerKind::kNetwork:
    case StragglerKind::kCompute:
      break;
  }
  return text + "; compute: the rank computes longer than the others, and does not wait for a processor, a disk or data";
}

std::string describe(const HelperIgnored& event) {
  return "rank " + std::to_string(event.rank) + ": " + event.why + "; its reports are ignored, and the job continues";
}

HelperIgnored no_protocol(int rank, const std::string& error, std::int64_t time_ns) {
  return {rank, "its messages to ddprun do not follow the worker protocol (" + error + ")", time_ns};
}

const char* name_of(RoundFailed::Decision decision) {
  switch (decision) {
    case RoundFailed::Decision::kRestart:
      return "restart";
    case RoundFailed::Decision::kRegroup:
      return "regroup";
    case RoundFailed::Decision::kGiveUp:
      return "give_up";
  }
  check_failed("unknown decision after a round");
}

std::string describe_failure(const Failure& failure) {
  return failure.status && failure.cause != Cause::kHang ? describe(*failure.status) : failure.message;
}

}  // namespace ddprun
