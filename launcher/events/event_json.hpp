// Converts events to JSON: one object per line for `--json`, and the parts of report.json. The code is pure: no I/O, no clock.
// Bytes that are not valid UTF-8 are replaced, since JSON cannot hold them; log files keep them.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "launcher/events/run_event.hpp"
#include "launcher/events/stream.hpp"

namespace ddprun {

// Returns a line such as {"event":"worker_started","rank":1,...}, with '\n' at its end.
std::string event_json_line(const RunEvent& event);

// Returns the line {"event":"output","rank":1,"stream":"stderr","line":"..."}, with '\n' at its end.
std::string output_json_line(int rank, Stream stream, std::string_view line);

// Returns the line {"event":"usage_error","exit_code":2,"message":"..."}, with '\n' at its end. The line reports an error that
// occurred before anything was started.
std::string usage_error_line(std::string_view message);

// Returns an object with the keys "rank", "pid", "exit_code" or "signal" with "signal_name", "cause", "message", "call_stack",
// "error_file", "step", "time_ns", "host", "log", "log_line", "evidence" and "stderr_tail".
nlohmann::ordered_json failure_json(const Failure& failure);

// Returns an object with the keys "event", "time_ns", "kind", "rank", "ended", "from_step", "step", "own_s", "others_s" and
// "part_s". "rank" is missing if no rank could be identified as the cause.
nlohmann::ordered_json straggler_json(const Straggler& event);

// Adds the status to the object, for example "exit_code": 3, or "signal": 9 and "signal_name": "SIGKILL". Also adds
// "core_dumped" if a core was dumped.
void add_status(nlohmann::ordered_json& object, const ExitStatus& status);

}  // namespace ddprun
