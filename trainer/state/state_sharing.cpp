// Implementation of state_sharing.hpp. All ranks first exchange their progress. The ranks with the newest state then send it
// to the other ranks, point to point. The scalar values are sent as JSON, and the tensors as raw bytes.
#include "trainer/state/state_sharing.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace ddprun::trainer {
namespace {

using nlohmann::json;

// JSON has no NaN and may round a number, so doubles are sent as the integer with the same bits.
json bits(double value) {
  return std::bit_cast<std::int64_t>(value);
}
double from_bits(const json& value) {
  return std::bit_cast<double>(value.get<std::int64_t>());
}

std::string state_header(const TrainingState& state) {
  json text{{"step", state.step}, {"started_from", state.started_from}, {"bucket_order", state.bucket_order}};
  text["world"] = {state.world, state.world_since};
  text["run"] = text_of(state.run);
  text["values"] = json::object();
  for (const auto& [name, value] : state.values) text["values"][name] = bits(value);
  if (state.figures) {
    const StepMetrics& figures = *state.figures;
    text["figures"] = {figures.step,        bits(figures.loss),          bits(figures.lr), bits(figures.gradient_norm),
                       figures.peak_memory, figures.largest_peak_memory, json(nullptr)};
    if (figures.skipped) text["figures"].back() = *figures.skipped;
  }
  if (state.evaluation) {
    const Evaluation& result = state.evaluation->result;
    json figures = json::array();
    for (const Metric& figure : result.figures) figures.push_back({figure.name, bits(figure.value)});
    text["evaluation"] = {state.evaluation->step, figures, result.samples};
  }
  return text.dump();
}

void apply_state_header(TrainingState& state, const std::string& received) {
  const json text = json::parse(received);
  state.step = text.at("step").get<std::int64_t>();
  state.started_from = text.at("started_from").get<std::int64_t>();
  state.bucket_order = text.at("bucket_order").get<BucketOrder>();
  state.world = text.at("world").at(0).get<int>();
  state.world_since = text.at("world").at(1).get<std::int64_t>();
  state.run = run_identity_of(text.at("run").get<std::string>());
  state.values.clear();
  for (const auto& [name, value] : text.at("values").items()) state.values[name] = from_bits(value);
  state.figures.reset();
  state.evaluation.reset();
  if (text.contains("figures")) {
    const json& figures = text["figures"];
    state.figures = StepMetrics{.step = figures.at(0).get<std::int64_t>(),
                                .loss = from_bits(figures.at(1)),
                                .lr = from_bits(figures.at(2)),
                                .gradient_norm = from_bits(figures.at(3)),
                                .peak_memory = figures.at(4).get<std::int64_t>(),
                                .largest_peak_memory = figures.at(5).get<std::int64_t>()};
    if (!figures.at(6).is_null()) state.figures->skipped = figures.at(6).get<std::int64_t>();
  }
  if (text.contains("evaluation")) {
    const json& evaluation = text["evaluation"];
    Evaluation result{.figures = {}, .samples = evaluation.at(2).get<std::int64_t>()};
    for (const json& figure : evaluation.at(1)) {
      result.figures.push_back({figure.at(0).get<std::string>(), from_bits(figure.at(1))});
    }
    state.evaluation = StepEvaluation{.step = evaluation.at(0).get<std::int64_t>(), .result = std::move(result)};
  }
}

std::vector<at::Tensor> tensors_of(const StateMap& map) {
  std::vector<at::Tensor> tensors;
  for (const StateTensor& one : map) tensors.push_back(one.entry.tensor);
  return tensors;
}

void send_state(const TrainingState& state, const Peers& peers, int to) {
  peers.send(state_header(state), to);
  for (const at::Tensor& tensor : tensors_of(state_map(state))) peers.send(tensor.cpu().contiguous(), to);
}

// If this rank has a complete state, that state is replaced only after the whole new state has arrived. If the sender is lost
// during the transfer, the old state may be the newest remaining one. If this rank has no complete state, each tensor is
// received directly into the model's memory, which saves a copy.
void receive_state(TrainingState& state, StateOrigin& origin, const Peers& peers, int from) {
  const bool aside = is_whole(origin);
  const std::string small = peers.receive_text(from);
  const StateMap map = state_map(state);
  const std::vector<at::Tensor> tensors = tensors_of(map);
  std::vector<at::Tensor> received;
  for (const at::Tensor& tensor : tensors) {
    const bool directly = !aside && tensor.device().is_cpu() && tensor.is_contiguous();
    received.push_back(directly ? tensor : at::empty_like(tensor, at::TensorOptions(at::kCPU), at::MemoryFormat::Contiguous));
    peers.receive(received.back(), from);
    if (directly || aside) continue;
    tensor.copy_(received.back());
    received.back().reset();
  }
  origin = StateOrigin::kNothing;
  for (std::size_t i = 0; aside && i < tensors.size(); ++i) tensors[i].copy_(received[i]);
  apply_state_header(state, small);
  std::vector<NamedTensor> of_optimizer;
  for (const StateTensor& one : map) {
    if (one.role == StateTensor::Role::kOptimizer) of_optimizer.push_back(one.entry);
  }
  // load_state() also marks the optimizer's state as used, so that the next step is not treated as the first step.
  state.optimizer->load_state(of_optimizer);
}

}  // namespace

std::int64_t progress_of(const TrainingState& state, StateOrigin origin) {
  if (!is_whole(origin)) return kNoProgress;
  return 2 * state.step + (state.evaluation && state.evaluation->step == state.step ? 1 : 0);
}

Sharing share_state(TrainingState& state, StateOrigin& origin, const Peers& peers) {
  return share_state(state, origin, peers, peers.from_all(progress_of(state, origin)));
}

Sharing share_state(TrainingState& state, StateOrigin& origin, const Peers& peers, const std::vector<std::int64_t>& progress) {
  const at::NoGradGuard no_gradients;
  const std::int64_t most = *std::max_element(progress.begin(), progress.end());
  if (most == kNoProgress) return {};

  std::vector<int> others;
  Sharing sharing;
  std::vector<int>& holders = sharing.holders;
  for (int rank = 0; rank < peers.world(); ++rank) {
    const std::int64_t has = progress[static_cast<std::size_t>(rank)];
    (has == most ? holders : others).push_back(rank);
    if (has == kNoProgress) sharing.without.push_back(rank);
  }
  // The ranks without the newest state are divided among the ranks with the newest state. All senders send at the same time.
  for (std::size_t i = 0; i < others.size(); ++i) {
    const int holder = holders[i % holders.size()];
    if (peers.rank() == holder) send_state(state, peers, others[i]);
    if (peers.rank() != others[i]) continue;
    if (!is_whole(origin)) origin = StateOrigin::kNothing;
    receive_state(state, origin, peers, holder);
  }
  origin = StateOrigin::kSurvivors;
  return sharing;
}

}  // namespace ddprun::trainer
