#include "trainer/checkpoint/manifest.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <tuple>

#include "common/base/error.hpp"
#include "common/base/json_problem.hpp"
#include "common/bounded/json_limits.hpp"
#include "common/bounded/short_quote.hpp"

namespace ddprun::trainer {
namespace {

using nlohmann::json;

constexpr int kFirst = 1;
constexpr int kByRole = 2;
constexpr const char* kOwnChecksum = "xxh3_128";

// Numbers are stored as text, so that the manifest's checksum doesn't depend on how a program prints numbers.
std::string exact_text(double value) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.17g", value);
  return text.data();
}

double number_of(const json& text) {
  const std::string& digits = text.get_ref<const std::string&>();
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size())
    throw UsageError("has '" + short_quote(digits) + "' for a number");
  return value;
}

// True for exactly two files, a model and an optimizer, both whole and under their default names.
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

json to_json(const Manifest& manifest) {
  const CheckpointState& state = manifest.state;
  const int version = has_files_of_first(manifest.files) && state.values.empty() ? kFirst : kByRole;
  json files = json::object();
  for (const auto& [name, file] : manifest.files) files[name] = to_json(file, version);
  json value{{"version", version},
             {"step", state.step},
             {"epoch", state.epoch},
             {"position", state.position},
             {"samples", state.samples},
             {"finished", state.finished},
             {"total_steps", state.total_steps},
             {"config_epochs", state.config_epochs},
             {"config_max_steps", state.config_max_steps},
             {"world_size", state.world_size},
             {"micro_batch_size", state.micro_batch_size},
             {"intra_op_threads", state.intra_op_threads},
             {"cpu_class", state.cpu_class},
             {"torch_version", state.torch_version},
             {"seed", state.seed},
             {"config_digest", state.config_digest},
             {"bucket_order", state.bucket_order},
             {"files", files}};
  if (!state.run.empty()) value["run"] = state.run;
  if (!state.device.empty()) value["device"] = state.device;
  if (!state.precision.empty()) value["precision"] = state.precision;
  if (!state.tied.empty()) value["tied"] = state.tied;
  for (const auto& [name, number] : state.values) value["values"][name] = exact_text(number);
  if (state.evaluation) {
    json& figures = value["evaluation"] = json::object();
    for (const Figure& figure : *state.evaluation) figures[figure.name] = exact_text(figure.value);
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
  value.at("step").get_to(state.step);
  value.at("epoch").get_to(state.epoch);
  value.at("position").get_to(state.position);
  value.at("samples").get_to(state.samples);
  value.at("finished").get_to(state.finished);
  value.at("total_steps").get_to(state.total_steps);
  value.at("config_epochs").get_to(state.config_epochs);
  value.at("config_max_steps").get_to(state.config_max_steps);
  value.at("world_size").get_to(state.world_size);
  value.at("micro_batch_size").get_to(state.micro_batch_size);
  value.at("intra_op_threads").get_to(state.intra_op_threads);
  value.at("cpu_class").get_to(state.cpu_class);
  value.at("torch_version").get_to(state.torch_version);
  value.at("seed").get_to(state.seed);
  value.at("config_digest").get_to(state.config_digest);
  value.at("bucket_order").get_to(state.bucket_order);
  for (const auto& [key, text] : {std::pair{"run", &state.run}, {"device", &state.device}, {"precision", &state.precision}}) {
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

// Returns false if a tensor of this shape has more elements than `bytes`, so that a file of that size cannot contain it.
bool fits(const std::vector<std::int64_t>& shape, std::int64_t bytes) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(elements, std::max<std::int64_t>(size, 1), &elements)) return false;
  }
  return elements <= bytes || std::ranges::find(shape, 0) != shape.end();
}

// Checks the files of the second format. An unknown role is an error: without its tensors the run would continue from an
// incomplete state.
void check_files(Manifest& manifest) {
  std::map<std::string, bool> has;
  for (const auto& [role, tensors] : tensors_by_role(manifest.state)) has[role] = false;
  std::int64_t bytes = 0;
  for (const auto& [name, file] : manifest.files) bytes += std::max<std::int64_t>(0, file.facts.bytes);
  for (const auto& [name, file] : manifest.files) {
    if (name.empty() || name.find('/') != std::string::npos)
      throw UsageError("lists '" + short_quote(name) + "', which is no file's name");
    if (!has.contains(file.role)) {
      throw UsageError("lists " + short_quote(name) + " with the role '" + short_quote(file.role) +
                       "', which this program does not know: a later ddprun wrote it");
    }
    has[file.role] = true;
    for (const auto& [tensor, piece] : file.pieces) {
      if (fits(piece.shape, bytes) && piece.begin >= 0) continue;
      throw UsageError("says of " + short_quote(name) + " that it has a piece of " + short_quote(tensor) +
                       ", with a size or a place that can't be");
    }
  }
  for (const char* role : {kModelRole, kOptimizerRole}) {
    if (!has[role]) throw UsageError("lists no file with the role '" + std::string(role) + "'");
  }
}

}  // namespace

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
                          "torch_version", "device", "precision", "evaluation", "run", "tied"}) {
    value.erase(key);
  }
  return checksum_of(value);
}

Manifest decode_manifest(const std::string& text) {
  try {
    require_json_within(text, {.depth = 16});
    json value = json::parse(text);
    // The version is checked first: another version may compute the checksum differently.
    const json& version = value.at("version");
    if (version != kFirst && version != kByRole) {
      throw UsageError("has version " + short_quote(version.dump()) +
                       ", this program reads versions 1 and 2: a later ddprun wrote it");
    }
    const std::string expected = value.at(kOwnChecksum).get<std::string>();
    value.erase(kOwnChecksum);
    const std::string found = checksum_of(value);
    if (found != expected) throw UsageError("does not match its own checksum (" + found + ", expected " + expected + ")");
    const int format = version.get<int>();
    Manifest manifest = from_json(value, format);
    if (format == kByRole) check_files(manifest);
    if (format == kFirst && !has_files_of_first(manifest.files)) {
      throw UsageError("must list exactly " + file_of_role(kModelRole) + " and " + file_of_role(kOptimizerRole));
    }
    return manifest;
  } catch (const json::exception& error) {
    throw UsageError("is not a manifest (" + json_problem(error, text) + ")");
  }
}

bool is_of_training(const CheckpointState& one, const CheckpointState& present) {
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

void take_end(CheckpointState& saved, const CheckpointState& state) {
  if (state.evaluation) saved.evaluation = state.evaluation;
  saved.values = state.values;
  saved.finished = state.finished;
  saved.total_steps = state.total_steps;
  saved.config_epochs = state.config_epochs;
  saved.config_max_steps = state.config_max_steps;
}

bool same_end(const CheckpointState& a, const CheckpointState& b) {
  const auto facts = [](const CheckpointState& s) {
    return std::tie(s.finished, s.total_steps, s.config_epochs, s.config_max_steps);
  };
  return facts(a) == facts(b);
}

}  // namespace ddprun::trainer
