// Looks for damaged pictures before training meets them.
//
// A run reads a picture when its turn comes: one of the test set at the first evaluation, maybe after hours. By then a damaged
// one costs the epoch. So each rank decodes its part of all pictures at the start, those of the test set first: at 256 x 256
// pixels two cores decode some 2,000 each second. A data set that needs more than the time given is checked beside training,
// and what is found then is a warning, since training may be far from it.
//
// A picture that was sound is not decoded again by the next start if its name, size and time of change are the same. For that
// the folder "picture-check" of the run directory has a file per rank with a hash of these for each such picture. Damaged
// pictures are not remembered.
#pragma once

#include <memory>

#include "common/config/train_config.hpp"
#include "trainer/picture_files/data_check.hpp"

namespace ddprun::trainer {

// Begins at once, with data.decode_threads threads. Folders that can't be listed are not its concern: it then checks nothing.
std::unique_ptr<DataCheck> check_pictures(const DataConfig& config, const DataCheckPlace& place);

}  // namespace ddprun::trainer
