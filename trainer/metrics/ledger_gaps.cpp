#include "trainer/metrics/ledger_gaps.hpp"

#include <algorithm>

#include "trainer/data/sampler.hpp"
#include "trainer/metrics/ledger.hpp"

namespace ddprun::trainer {

std::vector<LedgerGap> ledger_gaps(const std::filesystem::path& folder, const PreviousGroup& before, int rank, int world) {
  std::vector<LedgerGap> gaps;
  for (int of = rank; of < before.world; of += world) {
    // Each rank reads only the files that are assigned to it, because reading a file may take long or never end (a link to
    // /dev/full).
    const auto newest = newest_in_ledger(folder, of);
    if (!newest && of != rank) continue;
    gaps.push_back({.rank = of, .after = std::max({newest.value_or(0), before.started_from, before.since})});
  }
  return gaps;
}

void fill_ledger_gaps(const std::filesystem::path& folder, const std::vector<LedgerGap>& gaps, const PreviousGroup& before,
                      std::int64_t step, const RunLength& length, std::uint64_t seed,
                      const std::function<void(const std::string&)>& on_trouble) {
  for (const LedgerGap& gap : gaps) {
    if (gap.after >= step) continue;
    Ledger ledger(folder, gap.rank, on_trouble);
    std::int64_t epoch = -1;
    std::vector<std::int64_t> order;  // order of the samples in `epoch`; computed once per epoch, since it can take seconds
    for (std::int64_t done = gap.after; done < step; ++done) {
      if (length.epoch_of(done) != epoch) {
        epoch = length.epoch_of(done);
        order = epoch_order(length.samples_per_epoch, seed, epoch);
      }
      const std::int64_t position = length.position_of(done);
      const std::int64_t size = std::min(length.batch_size, length.samples_per_epoch - position);
      ledger.write(done + 1, epoch, position, share_of_batch(order, position, size, before.world, gap.rank));
    }
  }
}

}  // namespace ddprun::trainer
