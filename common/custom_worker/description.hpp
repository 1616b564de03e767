// A worker program's description of itself. `PROGRAM --describe` prints it as JSON (docs/schemas/describe.schema.json). Before
// ddprun starts workers, it reads the description to get the program's keys. The code is pure: no I/O, no clock.
#pragma once

#include <string>
#include <vector>

#include "common/config/task_keys.hpp"

namespace ddprun {

struct WorkerDescription {
  std::string name;
  std::string version;    // the program's version; may be empty
  std::string ddprun;     // version of the ddprun library with which the program was built
  std::string libtorch;   // version of LibTorch with which the program was built
  int channel_major = 0;  // the version of the worker channel that the program uses
  int channel_minor = 0;
  std::vector<TaskKey> keys{};
  bool operator==(const WorkerDescription&) const = default;
};

// Returns the description as JSON, with a newline at the end.
std::string description_json(const WorkerDescription& worker);

// Parses the JSON of a description. Ignores unknown fields, because a later version may add fields. Throws UsageError with the
// expected and the found value, such as "expected a JSON object, found ...".
WorkerDescription parse_description(const std::string& text);

}  // namespace ddprun
