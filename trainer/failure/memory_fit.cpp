#include "trainer/failure/memory_fit.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <limits>

#include <nlohmann/json.hpp>

#include "common/config/parse_config.hpp"
#include "common/system/atomic_file.hpp"

namespace ddprun::trainer {
namespace {

using nlohmann::json;

std::int64_t smaller_of(std::int64_t configured, std::int64_t learned) {
  if (learned <= 0) return configured;
  return configured <= 0 ? learned : std::min(configured, learned);
}

std::int64_t size_at(const json& document, const char* name) {
  const auto found = document.find(name);
  return found != document.end() && found->is_number_integer() ? std::max<std::int64_t>(0, found->get<std::int64_t>()) : 0;
}

std::string samples(std::int64_t count) {
  return std::to_string(count) + (count == 1 ? " sample" : " samples");
}

Shrinking halved(const char* what, std::int64_t size) {
  if (size <= 1) {
    return {channel::Shrink::kNothingLeft,
            {},
            std::string("; the ") + what +
                " is already 1 sample and cannot be reduced. Use a smaller model or input, or a device with more memory"};
  }
  const std::int64_t half = (size + 1) / 2;
  return {channel::Shrink::kDone,
          {},
          std::string("; the next round uses a ") + what + " of " + samples(half) + " instead of " + std::to_string(size) +
              ", and the global batch size does not change"};
}

}  // namespace

std::filesystem::path fit_file(const std::filesystem::path& run_dir) {
  return run_dir / "memory-fit.json";
}

std::string fit_key(const TrainConfig& config, const std::string& device) {
  json model = json::parse(to_json_text(config)).at("model");
  // Earlier versions lacked these keys. They are omitted if they have their default values, so that files of earlier versions
  // stay valid.
  if (config.model.freeze.empty()) model.erase("freeze");
  if (!config.model.sync_batch_norm) model.erase("sync_batch_norm");
  return model.dump() + " on " + device;
}

MemoryFit read_fit(const std::filesystem::path& file, const std::string& key) {
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const json document = json::parse(text, nullptr, false);
  if (!document.is_object() || document.value("for", json()) != key) return {};
  return {size_at(document, "micro_batch_size"), size_at(document, "eval_batch_size")};
}

bool write_fit(const std::filesystem::path& file, const std::string& key, const MemoryFit& fit) noexcept {
  try {
    const json document{{"micro_batch_size", fit.micro_batch_size}, {"eval_batch_size", fit.eval_batch_size}, {"for", key}};
    write_file_atomically(file, document.dump(1) + "\n");
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

MemoryFit smaller_fit(const MemoryFit& a, const MemoryFit& b) {
  return {smaller_of(a.micro_batch_size, b.micro_batch_size), smaller_of(a.eval_batch_size, b.eval_batch_size)};
}

void apply_fit(TrainConfig& config, const MemoryFit& fit) {
  config.micro_batch_size = smaller_of(config.micro_batch_size, fit.micro_batch_size);
  config.eval_batch_size = smaller_of(config.eval_batch_size, fit.eval_batch_size);
}

void agree_on_fit(TrainConfig& config, const std::filesystem::path& file, const std::string& device, const Peers& peers) {
  constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();
  const MemoryFit own = read_fit(file, fit_key(config, device));
  std::array<std::int64_t, 2> sizes{own.micro_batch_size, own.eval_batch_size};
  for (std::int64_t& size : sizes) size = size > 0 ? size : kUnlimited;
  peers.smallest_of_each(sizes);
  for (std::int64_t& size : sizes) size = size == kUnlimited ? 0 : size;
  const MemoryFit fit{sizes[0], sizes[1]};
  if (fit == MemoryFit{}) return;
  apply_fit(config, fit);
  if (peers.rank() != 0) return;
  std::fprintf(stderr,
               "ddptrain: batch sizes reduced, because an earlier round ran out of memory (recorded in %s): micro-batch %lld, "
               "evaluation batch %lld\n",
               file.c_str(), static_cast<long long>(config.micro_batch_size), static_cast<long long>(config.eval_batch_size));
}

Shrinking shrink_after(channel::Phase phase, const TrainConfig& config, int world) {
  if (phase == channel::Phase::kRunning) {
    const std::int64_t share = (config.batch_size + world - 1) / world;
    const std::int64_t size = config.micro_batch_size > 0 ? std::min(config.micro_batch_size, share) : share;
    Shrinking shrinking = halved("micro-batch", size);
    shrinking.fit = {(size + 1) / 2, 0};
    return shrinking;
  }
  if (phase == channel::Phase::kEvaluating) {
    Shrinking shrinking = halved("evaluation batch", config.eval_batch_size);
    shrinking.fit = {0, (config.eval_batch_size + 1) / 2};
    return shrinking;
  }
  return {};  // the error occurred while loading or saving, so a smaller batch would not help
}

}  // namespace ddprun::trainer
