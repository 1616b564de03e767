// Implementation of equal_start.hpp.
#include "trainer/parallel/equal_start.hpp"

#include <algorithm>
#include <cstdint>
#include <sstream>

#include "common/base/error.hpp"
#include "trainer/parallel/state_digest.hpp"

namespace ddprun::trainer {
namespace {

std::string describe(const NamedTensor& tensor) {
  std::ostringstream text;
  text << tensor.name << ' ' << c10::toString(tensor.tensor.scalar_type()) << ' ' << tensor.tensor.sizes();
  return text.str();
}

}  // namespace

std::string describe_model(const std::vector<NamedTensor>& parameters, const std::vector<NamedTensor>& buffers) {
  std::ostringstream text;
  for (const NamedTensor& parameter : parameters) {
    text << describe(parameter);
    if (!parameter.tensor.is_contiguous()) text << " with strides " << parameter.tensor.strides();
    text << '\n';
  }
  for (const NamedTensor& buffer : buffers) text << describe(buffer) << '\n';
  return text.str();
}

EqualOnAllRanks compare_with_others(const std::string& model, const std::string& buckets, const std::vector<at::Tensor>& state,
                                    const Peers& peers) {
  std::vector<std::int64_t> hashes = text_digest(model);
  const auto add = [&hashes](const std::vector<std::int64_t>& more) { hashes.insert(hashes.end(), more.begin(), more.end()); };
  add(text_digest(buckets));
  // All ranks must exchange the same number of values, also if their models have different devices.
  const bool on_cpu = std::ranges::all_of(state, [](const at::Tensor& tensor) { return tensor.is_cpu(); });
  add(on_cpu ? state_digest(state) : std::vector<std::int64_t>{0, 0});
  add({on_cpu ? 1 : 0});
  const std::vector<bool> equal = peers.each_equal(hashes);
  return {.model = equal[0] && equal[1], .buckets = equal[2] && equal[3], .state = on_cpu && equal[4] && equal[5] && equal[6]};
}

// PyTorch's verify_params_across_processes() throws a clear error on only some ranks, and the others would only report a lost
// rank. So every rank learns here which ranks differ.
void throw_other_model(const std::string& own, const Peers& peers) {
  std::istringstream rank0_lines(peers.from_rank_0(own));
  std::istringstream own_lines(own);
  std::string found, expected, own_line, rank0_line;
  std::int64_t differs = 0;
  while (true) {
    const bool more_own = static_cast<bool>(std::getline(own_lines, own_line));
    const bool more_rank0 = static_cast<bool>(std::getline(rank0_lines, rank0_line));
    if (!more_own && !more_rank0) break;
    if (more_own == more_rank0 && own_line == rank0_line) continue;
    differs = 1;
    found = more_own ? '"' + own_line + '"' : "nothing";
    expected = more_rank0 ? '"' + rank0_line + '"' : "nothing";
    break;
  }
  const auto all = peers.from_all(differs);
  if (differs) {
    throw UsageError("the model of this rank differs from the model of rank 0: expected " + expected + ", found " + found +
                     ". Give all ranks the same config and the same version of ddptrain");
  }
  std::string others;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != 0) others += (others.empty() ? "" : ", ") + std::to_string(rank);
  }
  throw UsageError(
      "the model of rank 0 differs from the model of rank " + others +
      "; the error message from that rank names the tensor. Give all ranks the same config and the same ddptrain version");
}

}  // namespace ddprun::trainer
