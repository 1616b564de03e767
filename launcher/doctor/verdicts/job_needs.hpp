// The parts of a job's plan on which verdicts depend: the same machine may suit one job and not another. examination_of() in
// doctor.cpp fills this struct from a plan. The default values apply if no job is given.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace ddprun::doctor {

struct JobNeeds {
  enum class Work {
    kUnknown,  // no job was named
    kTrain,    // a train.json
    kPython,   // a Python script or module
    kProgram,  // any other program
  };
  enum class Gpus {
    kUnused,   // the config selects the CPU
    kIfFound,  // a script, or device "auto": GPUs are used if there are any
    kRequired  // device "cuda", or one worker per GPU was requested
  };
  Work work = Work::kUnknown;
  Gpus gpus = Gpus::kIfFound;
  bool share_gpus = false;     // DDPTRAIN_SHARE_GPU: several workers may use one GPU
  int workers = 1;             // number of workers on this node
  int nodes = 1;               // the maximum of --nnodes
  std::string meeting_host{};  // host of --master-addr or --rdzv-endpoint; empty if it is this machine
  // true if this node is at meeting_host, according to its node rank or is_host; nullopt if unknown
  std::optional<bool> is_first{};
  // time for which a starting agent waits for the first node, even if the name of that node does not resolve yet (join_timeout
  // of --rdzv-conf)
  std::chrono::seconds join_timeout{600};
  std::string interface {};  // --interface

  bool many_nodes() const { return nodes > 1; }
};

}  // namespace ddprun::doctor
