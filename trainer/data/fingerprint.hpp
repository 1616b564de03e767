// A fingerprint of the training data, which the run stores in run.json. When the run is started again, the fingerprint is
// computed again and compared with the stored one. So files that have changed under the same path are detected. The
// fingerprint covers only the number and shape of the samples, all labels, and parts of the images. So its computation is
// fast.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/dataset.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

// Returns "train 60000x1x28x28 0123456789abcdef, test ...". The text depends only on the samples, not on the files that
// contain them. The function is pure.
std::string fingerprint_of(const Sources& data);

// Returns the fingerprint of one split of images, for example "60000x1x28x28 0123456789abcdef".
std::string fingerprint_of(const Dataset& set);
// Returns evenly spaced pieces of the bytes, or all bytes of a small data set. So a fingerprint does not read a whole mapped
// file.
std::vector<std::string_view> spread_pieces(std::string_view bytes);
// Returns a hash of the bytes as hexadecimal text: "0123456789abcdef".
std::string fingerprint_of(std::string_view bytes);

}  // namespace ddprun::trainer
