// Events as JSON: one object per line for `--json`, and the parts of report.json. The code is pure: no I/O, no clock. Bytes
// that are not valid UTF-8 are replaced, since JSON cannot hold them; log files keep them.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "launcher/events/run_event.hpp"
#include "launcher/events/stream.hpp"

namespace ddprun {

// {"event":"worker_started","rank":1,...} and '\n'.
std::string event_json_line(const RunEvent& event);

// {"event":"output","rank":1,"stream":"stderr","line":"..."} and '\n'.
std::string output_json_line(int rank, Stream stream, std::string_view line);

// {"event":"usage_error","exit_code":2,"message":"..."} and '\n', for an error before anything was started.
std::string usage_error_line(std::string_view message);

// {"rank","pid","exit_code"|"signal","signal_name","cause","message","call_stack","error_file","step","time_ns","host","log",
// "log_line","evidence","stderr_tail"}
nlohmann::ordered_json failure_json(const Failure& failure);

// {"event","time_ns","kind","rank","ended","from_step","step","own_s","others_s","part_s"}; "rank" is missing if no rank could
// be identified as the cause.
nlohmann::ordered_json straggler_json(const Straggler& event);

// "exit_code": 3, or "signal": 9 and "signal_name": "SIGKILL"; also "core_dumped" if a core was dumped.
void add_status(nlohmann::ordered_json& object, const ExitStatus& status);

}  // namespace ddprun
