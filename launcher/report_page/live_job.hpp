// The state of a running job that the page of `ddprun report --follow` shows. It comes from the answers of the job's agents to
// a status query (docs/schemas/status.schema.json). The texts are the same as in `ddprun status`. The code is pure: no I/O, no
// clock.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/query/local/status_texts.hpp"

namespace ddprun {

struct LiveWorker {
  std::string node;  // name of the worker's host
  WorkerTexts texts;
  std::string log;  // folder of the worker's newest log files; "" if it has none, or if they are on another node
};

struct LiveJob {
  std::int64_t now_ns = 0;  // time of the answers, in nanoseconds since 1970
  std::string state;        // such as "running for 2 min 03 s, 1 of 3 restarts used"; "" if the agent did not answer
  std::string progress;     // such as "epoch 2/3 step 512/1,407 ..."; "" if unknown
  std::int64_t step = 0;    // finished steps, and the steps of the whole run; 0 if unknown
  std::int64_t steps_total = 0;
  std::string last_failure{};
  std::string note{};  // describes a problem, such as nodes that did not answer; "" if there is none
  std::vector<LiveWorker> workers{};
};

// `nodes` has the status of each node that answered, in the order of node ranks. `logs` has the folders of the workers' log
// files by rank, as far as they are known.
LiveJob live_job_of(const std::vector<nlohmann::json>& nodes, const std::map<int, std::string>& logs, std::int64_t now_ns);

}  // namespace ddprun
