// Implementation of bad_data.hpp.
#include "trainer/loop/bad_data.hpp"

#include <cstddef>
#include <optional>
#include <span>

#include "trainer/finite/not_finite.hpp"

namespace ddprun::trainer {

std::string not_finite_in(const Share& share, const Source& source) {
  for (const std::int64_t& sample : share.samples) {
    const Batch batch = source.make(std::span(&sample, 1), {});
    for (std::size_t i = 0; i < batch.tensors.size(); ++i) {
      const std::optional<NotFinite> found = first_not_finite(batch.tensors[i].select(0, 0));
      if (!found) continue;
      return not_finite_text(found->value) + place_text(found->index) + " of " + source.place_of(sample, i);
    }
  }
  return "";
}

}  // namespace ddprun::trainer
