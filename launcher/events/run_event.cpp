// Names of events for people and for the report.
#include "launcher/events/run_event.hpp"

#include <algorithm>
#include <cstdio>

#include "common/base/check.hpp"
#include "launcher/events/printed.hpp"

namespace ddprun {

std::string ranks_text(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > kShown) text += " and " + std::to_string(ranks.size() - kShown) + " more";
  return text;
}

std::string describe(const CutOff& event) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f", event.seconds);
  return "no answer from the coordinator for " + std::string(seconds) +
         " s: the workers of this node were ended, since the other nodes may have gone on without it";
}

std::string describe(const StopIsSlow& event) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.0f", event.seconds);
  std::string text;
  if (event.first) {
    text = "rank " + std::to_string(event.first->rank) + " (pid " + std::to_string(event.first->pid) +
           ") failed: " + how_it_failed(*event.first) + "; ";
  }
  text += "the workers were told to stop " + std::string(seconds) + " s ago, and this is waited for:";
  for (const StopIsSlow::Awaited& one : event.awaited) {
    text += " rank " + std::to_string(one.rank) + " (pid " + std::to_string(one.pid) + ")";
    if (!one.summary.empty()) text += " in " + one.summary;
    text += one.pid == event.awaited.back().pid ? "" : ";";
  }
  return text;
}

std::string describe(const WorkersLeft& event) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.0f", event.seconds);
  const bool one = event.ended.size() == 1;
  return ranks_text(event.ended) + (one ? " ended" : " have ended") + " with exit code 0, " + (one ? "" : "the first ") +
         seconds + " s ago, and " + ranks_text(event.running) +
         (event.running.size() == 1 ? " runs on, perhaps waiting for " : " run on, perhaps waiting for ") +
         (one ? "it" : "them");
}

std::string describe(const LeftoversFound& event) {
  constexpr std::size_t kMost = 8;
  std::string names;
  for (std::size_t i = 0; i < event.processes.size() && i < kMost; ++i) names += (i == 0 ? "" : "; ") + event.processes[i];
  if (event.processes.size() > kMost) names += "; and " + std::to_string(event.processes.size() - kMost) + " more";
  if (event.what == LeftoversFound::What::kAwaited) {
    return "rank " + std::to_string(event.rank) +
           " ended with exit code 0, and a process that it started works for the job: the job continues until process " +
           names + " ends";
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
  check_failed("a rank is slow in a way that there is not");
}

std::string describe(const Straggler& event) {
  const auto ms = [](double seconds) { return printed(seconds < 0.01 ? "%.1f ms" : "%.0f ms", seconds * 1000); };
  const std::string steps = " in steps " + std::to_string(event.from_step) + " to " + std::to_string(event.step);
  if (event.kind == StragglerKind::kNetwork) {
    if (event.ended) return "the exchange between the ranks is as fast as before again" + steps;
    return "network: the exchange between the ranks takes " + ms(event.own_s) + " a step" + steps + ", before it took " +
           ms(event.others_s) +
           (event.rank < 0 ? "; no rank computes longer"
                           : "; the link of rank " + std::to_string(event.rank) + "'s node is slow: a round trip takes " +
                                 ms(event.round_trip_s) + ", between others " + ms(event.others_round_trip_s));
  }
  std::string text = "rank " + std::to_string(event.rank);
  if (event.pid > 0) text += " (pid " + std::to_string(event.pid) + ")";
  if (event.ended) return text + " keeps the others waiting no more" + steps;
  text +=
      " keeps the others waiting: " + ms(event.own_s) + " a step of its own, the others " + ms(event.others_s) + "," + steps;
  switch (event.kind) {
    case StragglerKind::kProcessor:
      return text + "; processor: for " + ms(event.part_s) + " of it, it was ready to run and had no processor, or was stopped";
    case StragglerKind::kDisk:
      return text + "; disk: for " + ms(event.part_s) + " of it, it waited for a disk";
    case StragglerKind::kData:
      return text + "; data: for " + ms(event.part_s) + " of it, it waited for its batch";
    case StragglerKind::kNetwork:
    case StragglerKind::kCompute:
      break;
  }
  return text + "; compute: it had its processor, disk and data, and computed longer";
}

std::string describe(const HelperIgnored& event) {
  return "rank " + std::to_string(event.rank) + ": " + event.why + "; what it reports is ignored, and the job goes on";
}

HelperIgnored no_protocol(int rank, const std::string& error, std::int64_t time_ns) {
  return {rank, "what came over its channel is not the protocol of one (" + error + ")", time_ns};
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
  check_failed("a round ends in a way that there is not");
}

std::string how_it_failed(const Failure& failure) {
  return failure.status && failure.cause != Cause::kHang ? describe(*failure.status) : failure.message;
}

}  // namespace ddprun
