// A fingerprint of the data that a run trains on: kept with the run (run.json), it tells a later start that the files under the
// same path are others. Cheap rather than complete: how many samples of which shape, all labels, and pieces of the images.
#pragma once

#include <string>
#include <string_view>

#include "trainer/data/dataset.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

// "train 60000x1x28x28 0123456789abcdef, test ...": the same for the same samples, whatever files they come in. Pure.
std::string fingerprint_of(const Sources& data);

// One split's part of it, of pictures.
std::string fingerprint_of(const Dataset& set);
// Of bytes: "0123456789abcdef".
std::string fingerprint_of(std::string_view bytes);

}  // namespace ddprun::trainer
