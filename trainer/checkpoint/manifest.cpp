#include "trainer/checkpoint/manifest.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>
#include <tuple>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/json_problem.hpp"
#include "common/base/numbers.hpp"
#include "common/bounded/bounded_file.hpp"
#include "common/bounded/json_limits.hpp"
#include "common/bounded/short_quote.hpp"
#include "common/system/resource_errors.hpp"
#include "trainer/checkpoint/checkpoint_folder.hpp"
#include "trainer/checkpoint/safetensors.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFirst = 1;
constexpr int kByRole = 2;
constexpr const char* kOwnChecksum = "xxh3_128";

// Numbers are stored as text, because the manifest's checksum must not depend on how a program prints numbers.
std::string exact_text(double value) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.17g", value);
  return text.data();
}

double number_of(const json& text) {
  const std::string& digits = text.get_ref<const std::string&>();
  if (const auto value = exact_number<double>(digits)) return *value;
  throw UsageError("has '" + short_quote(digits) + "' where a number is expected");
}

// Returns true if the manifest lists exactly two files, a model and an optimizer, with whole tensors and default names. The
// first format of the manifest can describe only such a checkpoint.
bool has_files_of_first(const std::map<std::string, StateFile>& files) {
  const auto is_of = [&](const char* role) {
    const auto found = files.find(file_of_role(role));
    return found != files.end() && found->second.role == role && found->second.pieces.empty();
  };
  return files.size() == 2 && is_of(kModelRole) && is_of(kOptimizerRole);
}

json to_json(const StateFile& file, int version) {
  json value{{"bytes", file.facts.bytes}, {"xxh3_128", file.facts.xxh3_128}};
  if (version == kFirst) return value;
  value["role"] = file.role;
  for (const auto& [name, piece] : file.pieces) value["pieces"][name] = {{"shape", piece.shape}, {"begin", piece.begin}};
  return value;
}

// Calls `visit` with the key and the value of each entry that all manifests have.
template <class State, class Visit>
void visit_facts(State& state, const Visit& visit) {
  visit("step", state.step);
  visit("epoch", state.epoch);
  visit("position", state.position);
  visit("samples", state.samples);
  visit("finished", state.finished);
  visit("total_steps", state.total_steps);
  visit("config_epochs", state.config_epochs);
  visit("config_max_steps", state.config_max_steps);
  visit("world_size", state.world_size);
  visit("micro_batch_size", state.micro_batch_size);
  visit("intra_op_threads", state.intra_op_threads);
  visit("cpu_class", state.cpu_class);
  visit("torch_version", state.torch_version);
  visit("seed", state.seed);
  visit("config_digest", state.config_digest);
  visit("bucket_order", state.bucket_order);
}

json to_json(const Manifest& manifest) {
  const CheckpointState& state = manifest.state;
  const int version = has_files_of_first(manifest.files) && state.values.empty() ? kFirst : kByRole;
  json files = json::object();
  for (const auto& [name, file] : manifest.files) files[name] = to_json(file, version);
  json value{{"version", version}, {"files", files}};
  visit_facts(state, [&](const char* key, const auto& fact) { value[key] = fact; });
  if (!state.run.empty()) value["run"] = state.run;
  if (!state.device.empty()) value["device"] = state.device;
  if (!state.precision.empty()) value["precision"] = state.precision;
  if (!state.summation.empty()) value["summation"] = state.summation;
  if (!state.tied.empty()) value["tied"] = state.tied;
  for (const auto& [name, number] : state.values) value["values"][name] = exact_text(number);
  if (state.evaluation) {
    json& figures = value["evaluation"] = json::object();
    for (const Metric& figure : *state.evaluation) figures[figure.name] = exact_text(figure.value);
  }
  return value;
}

std::string checksum_of(const json& without_checksum) {
  return xxh3_128_of(without_checksum.dump());
}

StateFile file_from_json(const std::string& name, const json& facts, int version) {
  StateFile file{.facts = {.bytes = facts.at("bytes").get<std::int64_t>(), .xxh3_128 = facts.at("xxh3_128").get<std::string>()},
                 .role = name.substr(0, name.find('.'))};
  if (version == kFirst) return file;
  facts.at("role").get_to(file.role);
  const json pieces = facts.value("pieces", json::object());
  for (const auto& [tensor, piece] : pieces.items()) {
    file.pieces[tensor] = {.shape = piece.at("shape").get<std::vector<std::int64_t>>(),
                           .begin = piece.at("begin").get<std::int64_t>()};
  }
  return file;
}

Manifest from_json(const json& value, int version) {
  Manifest manifest;
  CheckpointState& state = manifest.state;
  visit_facts(state, [&](const char* key, auto& fact) { value.at(key).get_to(fact); });
  for (const auto& [key, text] : {std::pair{"run", &state.run},
                                  {"device", &state.device},
                                  {"precision", &state.precision},
                                  {"summation", &state.summation}}) {
    if (const auto found = value.find(key); found != value.end()) found->get_to(*text);
  }
  if (const auto tied = value.find("tied"); tied != value.end()) tied->get_to(state.tied);
  if (const auto evaluation = value.find("evaluation"); evaluation != value.end()) {
    state.evaluation.emplace();
    for (const auto& [name, figure] : evaluation->items()) state.evaluation->push_back({name, number_of(figure)});
  }
  for (const auto& [name, facts] : value.at("files").items()) manifest.files[name] = file_from_json(name, facts, version);
  if (version == kFirst) return manifest;
  const json values = value.value("values", json::object());
  for (const auto& [name, number] : values.items()) state.values[name] = number_of(number);
  return manifest;
}

// Returns false if a tensor of this shape has more elements than `bytes`. A file of `bytes` bytes cannot contain such a tensor.
bool fits(const std::vector<std::int64_t>& shape, std::int64_t bytes) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(elements, std::max<std::int64_t>(size, 1), &elements)) return false;
  }
  return elements <= bytes || std::ranges::find(shape, 0) != shape.end();
}

// Checks the file entries of a manifest in the second format. An unknown role is an error, because the run would continue
// without the tensors of this role.
void check_files(Manifest& manifest) {
  std::map<std::string, bool> has;
  for (const auto& [role, tensors] : tensors_by_role(manifest.state)) has[role] = false;
  std::int64_t bytes = 0;
  for (const auto& [name, file] : manifest.files) bytes += std::max<std::int64_t>(0, file.facts.bytes);
  for (const auto& [name, file] : manifest.files) {
    if (name.empty() || name.find('/') != std::string::npos)
      throw UsageError("lists the file '" + short_quote(name) + "'; expected a file name without a folder");
    if (!has.contains(file.role)) {
      throw UsageError("lists " + short_quote(name) + " with the unknown role '" + short_quote(file.role) +
                       "': a later version of ddprun wrote this checkpoint. Use that version, or a later one");
    }
    has[file.role] = true;
    for (const auto& [tensor, piece] : file.pieces) {
      if (fits(piece.shape, bytes) && piece.begin >= 0) continue;
      throw UsageError("lists a piece of tensor " + short_quote(tensor) + " in the file " + short_quote(name) +
                       " with an impossible size or position");
    }
  }
  for (const char* role : {kModelRole, kOptimizerRole}) {
    if (!has[role]) throw UsageError("lists no file with the role '" + std::string(role) + "'");
  }
}

// Reads the whole file and compares its checksum with the checksum in the manifest.
void verify_file(const fs::path& file, const FileFacts& expected) {
  FileFacts found;
  try {
    found = facts_of_file(file);
  } catch (const std::system_error& unreadable) {
    throw_if_resources_exhausted(unreadable.code().value(), unreadable.what());
    throw UsageError(unreadable.what());
  }
  if (found != expected) refuse_checksum(file, found.xxh3_128, expected.xxh3_128);
}

// Reads a file of tensors once and computes its checksum during that read. If the bytes can't be parsed, the checksum is
// compared before the parser's error is thrown. So a damaged file is always reported as damaged.
std::vector<NamedTensor> load_tensors(const fs::path& file, const FileFacts& expected) {
  Checksum checksum;
  SafetensorsContent content;
  try {
    content = read_safetensors(file, checksum);
  } catch (const UsageError&) {
    verify_file(file, expected);
    throw;
  }
  if (checksum.xxh3_128() != expected.xxh3_128) refuse_checksum(file, checksum.xxh3_128(), expected.xxh3_128);
  return std::move(content.tensors);
}

}  // namespace

void refuse_checksum(const fs::path& file, const std::string& found, const std::string& expected) {
  throw UsageError(file.string() + " has checksum " + found + ", but its manifest lists " + expected);
}

std::string file_of_role(const std::string& role) {
  return role + ".safetensors";
}

std::string encode_manifest(const Manifest& manifest) {
  json value = to_json(manifest);
  value[kOwnChecksum] = checksum_of(value);
  return value.dump(2) + "\n";
}

std::string content_digest(const Manifest& manifest) {
  json value = to_json(manifest);
  for (const char* key : {"finished", "total_steps", "config_epochs", "config_max_steps", "intra_op_threads", "cpu_class",
                          "torch_version", "device", "precision", "summation", "evaluation", "run", "tied"}) {
    value.erase(key);
  }
  return checksum_of(value);
}

Manifest decode_manifest(const std::string& text) {
  try {
    require_json_within(text, {.depth = 16});
    json value = json::parse(text);
    // The version is checked before the checksum, since another version may compute the checksum differently.
    const json& version = value.at("version");
    if (version != kFirst && version != kByRole) {
      throw UsageError("has version " + short_quote(version.dump()) +
                       "; expected 1 or 2. A later version of ddprun wrote it: use that version");
    }
    const std::string expected = value.at(kOwnChecksum).get<std::string>();
    value.erase(kOwnChecksum);
    const std::string found = checksum_of(value);
    if (found != expected) {
      throw UsageError("has checksum " + found + ", but lists " + expected + " for itself: it is damaged or was edited");
    }
    const int format = version.get<int>();
    Manifest manifest = from_json(value, format);
    if (format == kByRole) check_files(manifest);
    if (format == kFirst && !has_files_of_first(manifest.files)) {
      throw UsageError("must list exactly the files " + file_of_role(kModelRole) + " and " + file_of_role(kOptimizerRole));
    }
    return manifest;
  } catch (const json::exception& error) {
    throw UsageError("is not a checkpoint manifest (" + json_problem(error, text) + ")");
  }
}

bool belongs_to_training(const CheckpointState& one, const CheckpointState& present) {
  return one.run == present.run || std::ranges::any_of(present.earlier, [&](const EarlierRun& earlier) {
           return earlier.id == one.run && one.step <= earlier.until;
         });
}

bool same_step_of_run(const CheckpointState& a, const CheckpointState& b) {
  const auto facts = [](const CheckpointState& s) {
    return std::tie(s.step, s.epoch, s.position, s.samples, s.seed, s.config_digest);
  };
  return facts(a) == facts(b);
}

void copy_run_end(CheckpointState& saved, const CheckpointState& state) {
  if (state.evaluation) saved.evaluation = state.evaluation;
  saved.values = state.values;
  saved.finished = state.finished;
  saved.total_steps = state.total_steps;
  saved.config_epochs = state.config_epochs;
  saved.config_max_steps = state.config_max_steps;
}

bool same_run_end(const CheckpointState& a, const CheckpointState& b) {
  const auto facts = [](const CheckpointState& s) {
    return std::tie(s.finished, s.total_steps, s.config_epochs, s.config_max_steps);
  };
  return facts(a) == facts(b);
}

Manifest read_manifest(const fs::path& checkpoint) {
  const fs::path file = checkpoint / kManifestFile;
  std::error_code error;
  if (!fs::is_regular_file(file, error)) throw UsageError(file.string() + " is missing");
  constexpr std::size_t kMaxBytes = 100'000'000;  // same limit as for a safetensors header, which lists the same tensors
  const std::string text = read_bounded(file, kMaxBytes, "a manifest");
  try {
    Manifest manifest = decode_manifest(text);
    if (folder_name(manifest.state.step) != published_name(checkpoint.filename().string())) {
      throw UsageError("contains step " + std::to_string(manifest.state.step) +
                       ", which differs from the step in the folder name");
    }
    return manifest;
  } catch (const UsageError& problem) {
    throw UsageError(file.string() + " " + problem.what());
  }
}

Manifest judged_manifest(const fs::path& checkpoint) {
  Manifest manifest = read_manifest(checkpoint);
  for (const auto& [name, listed] : manifest.files) {
    const FileFacts& expected = listed.facts;
    const fs::path file = checkpoint / name;
    std::error_code error;
    const fs::file_status status = fs::status(file, error);
    if (!fs::exists(status)) throw UsageError(file.string() + " is missing");
    if (!fs::is_regular_file(status)) throw UsageError(file.string() + " is not a regular file");
    const auto bytes = static_cast<std::int64_t>(fs::file_size(file, error));
    if (!error && bytes != expected.bytes) {
      throw UsageError(file.string() + " has " + std::to_string(bytes) + " bytes, but its manifest lists " +
                       std::to_string(expected.bytes));
    }
  }
  return manifest;
}

Manifest verified_manifest(const fs::path& checkpoint) {
  Manifest manifest = judged_manifest(checkpoint);
  for (const auto& [name, file] : manifest.files) verify_file(checkpoint / name, file.facts);
  return manifest;
}

std::vector<NamedTensor> load_role(const fs::path& checkpoint, const Manifest& manifest, const std::string& role) {
  WholeTensors tensors;
  for (const auto& [name, file] : manifest.files) {
    if (file.role != role) continue;
    std::vector<NamedTensor> found = load_tensors(checkpoint / name, file.facts);
    try {
      tensors.add(std::move(found), file.pieces);
    } catch (const UsageError& problem) {
      throw UsageError((checkpoint / name).string() + " " + problem.what());
    }
  }
  try {
    return std::move(tensors).take();
  } catch (const UsageError& problem) {
    throw UsageError(checkpoint.string() + ": " + problem.what());
  }
}

void verify_role(const fs::path& checkpoint, const Manifest& manifest, const std::string& role) {
  for (const auto& [name, file] : manifest.files) {
    if (file.role == role) verify_file(checkpoint / name, file.facts);
  }
}

}  // namespace ddprun::trainer
