// A fingerprint of the training data, kept with the run (run.json). A later start detects with it that files under the same
// path have changed. It is cheap and not complete: it covers the number and shape of samples, all labels, and pieces of the
// images.
#pragma once

#include <string>
#include <string_view>

#include "trainer/data/dataset.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

// "train 60000x1x28x28 0123456789abcdef, test ...". The same samples give the same text, whatever files hold them. Pure.
std::string fingerprint_of(const Sources& data);

// The part of one split of images.
std::string fingerprint_of(const Dataset& set);
// Hash of the bytes: "0123456789abcdef".
std::string fingerprint_of(std::string_view bytes);

}  // namespace ddprun::trainer
