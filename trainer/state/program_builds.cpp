#include "trainer/state/program_builds.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <vector>

#include "trainer/checkpoint/hashed_file.hpp"
#include "trainer/state/state_sharing.hpp"

namespace ddprun::trainer {
namespace {

std::int64_t from_hex(std::string_view digits) {
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return std::bit_cast<std::int64_t>(value);
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return text + (ranks.size() == 1 ? " runs" : " run");
}

}  // namespace

StateDigest digest_of_own_program() {
  constexpr std::size_t kHalf = 16;
  try {
    const std::string hex = facts_of_file("/proc/self/exe").xxh3_128;
    return {from_hex(std::string_view(hex).substr(0, kHalf)), from_hex(std::string_view(hex).substr(kHalf))};
  } catch (const std::system_error&) {
    return {};
  }
}

std::vector<std::int64_t> ProgramBuilds::agree(const StateDigest& own, std::int64_t progress, const Peers& peers) {
  const bool holds_state = progress != kNoProgress;
  const std::array<std::int64_t, 3> mine{own[0], own[1], progress};
  const std::vector<std::int64_t> all = peers.from_all(mine);
  std::vector<std::int64_t> progresses;
  for (std::size_t i = 2; i < all.size(); i += mine.size()) progresses.push_back(all[i]);
  std::set<StateDigest> here, of_holders;
  std::vector<int> strange;
  for (const bool holders : {true, false}) {
    for (std::size_t i = 0; i < all.size(); i += mine.size()) {
      const StateDigest build{all[i], all[i + 1]};
      if (holders && all[i + 2] != kNoProgress) of_holders.insert(build);
      if (holders || of_holders.contains(build)) continue;
      here.insert(build);
      strange.push_back(static_cast<int>(i / mine.size()));
    }
  }
  here.insert(of_holders.begin(), of_holders.end());
  // Each rank with state reports whether `here` has a build that was not in the rank's last group. A rank without state has no
  // record of earlier builds.
  const bool unknown =
      holds_state && std::ranges::any_of(here, [this](const StateDigest& build) { return !known_.contains(build); });
  if (!of_holders.empty() && !strange.empty() && peers.largest(unknown ? 1 : 0) > 0) {
    throw OtherBuildError(ranks_text(strange) +
                          " another build of the worker program than the ranks that hold the state, and may compute different "
                          "results: the state is dropped, and all ranks start again from the newest checkpoint");
  }
  known_ = std::move(here);
  return progresses;
}

}  // namespace ddprun::trainer
