#include "launcher/custom_worker/program_record.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/system/atomic_file.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Returns the record. The result is not a JSON object if there is no record or the file can't be read.
Json recorded(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return Json::parse(in, nullptr, /*allow_exceptions=*/false);
}

std::string text_field(const Json& record, const char* name) {
  const auto found = record.find(name);
  return found != record.end() && found->is_string() ? printable(found->get<std::string>()) : "?";
}

std::string program_text(const Json& record) {
  const std::string version = text_field(record, "version");
  return text_field(record, "name") + (version.empty() ? "" : " " + version) + " (" + text_field(record, "program") +
         ", xxh3_128 " + text_field(record, "xxh3_128") + ")";
}

}  // namespace

std::string digest_of_program(const fs::path& program) {
  struct State {
    XXH3_state_t* state = XXH3_createState();
    ~State() { XXH3_freeState(state); }
  } const hash;
  XXH3_128bits_reset(hash.state);
  std::ifstream in(program, std::ios::binary);
  std::vector<char> chunk(std::size_t{1} << 20);
  while (in) {
    in.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    XXH3_128bits_update(hash.state, chunk.data(), static_cast<std::size_t>(in.gcount()));
  }
  if (!in.eof()) throw UsageError("worker program " + printable(program.string()) + " cannot be read");
  const XXH128_hash_t digest = XXH3_128bits_digest(hash.state);
  std::array<char, 33> hex{};
  std::snprintf(hex.data(), hex.size(), "%016llx%016llx", static_cast<unsigned long long>(digest.high64),
                static_cast<unsigned long long>(digest.low64));
  return hex.data();
}

std::string update_program_record(const fs::path& file, const std::optional<CustomWorker>& worker) {
  const Json before = recorded(file);
  if (!worker) {
    if (!before.is_object()) return "";
    return "the worker program has changed: the last start used " + program_text(before) + ", this start uses ddptrain";
  }
  const WorkerDescription& about = worker->description;
  const Json now{{"program", worker->program.string()},
                 {"xxh3_128", digest_of_program(worker->program)},
                 {"name", about.name},
                 {"version", about.version},
                 {"ddprun", about.ddprun},
                 {"libtorch", about.libtorch}};
  if (before == now) return "";
  try {
    write_file_atomically(file, now.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } catch (const std::system_error& error) {
    return std::string(error.what()) + "; the next start cannot detect a changed worker program";
  }
  if (!before.is_object() || text_field(before, "xxh3_128") == text_field(now, "xxh3_128")) return "";
  return "the worker program has changed: the last start used " + program_text(before) + ", this start uses " +
         program_text(now);
}

}  // namespace ddprun
