// What a worker program says of itself: `PROGRAM --describe` prints it as JSON (docs/schemas/describe.schema.json), ddprun
// reads it before anything is started, so that it knows the program's keys. Pure.
#pragma once

#include <string>
#include <vector>

#include "common/config/task_keys.hpp"

namespace ddprun {

struct WorkerDescription {
  std::string name;
  std::string version;    // its author's; may be empty
  std::string ddprun;     // of the library that it was built with
  std::string libtorch;   // likewise
  int channel_major = 0;  // the version of the worker channel that it speaks
  int channel_minor = 0;
  std::vector<TaskKey> keys{};
  bool operator==(const WorkerDescription&) const = default;
};

// Ends with a newline.
std::string description_json(const WorkerDescription& worker);

// Fields that it does not know are of a later version and are passed over. Throws UsageError saying what was expected and
// found: "expected a JSON object, found ...".
WorkerDescription parse_description(const std::string& text);

}  // namespace ddprun
