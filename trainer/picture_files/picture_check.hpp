// Finds damaged images before training reads them.
//
// A run reads an image when it needs it. An image of the test set is read at the first evaluation, maybe after hours, and a
// damaged one then costs the epoch. So each rank decodes its part of all images at the start, first those of the test set. At
// 256 x 256 pixels two cores decode some 2,000 images per second. If a data set takes longer than the time limit, the check
// continues in parallel with training. It then reports damage as a warning, since training may not need that image for a long
// time.
//
// The next start does not decode an intact image again if its name, size and modification time are the same. For that the
// folder "picture-check" of the run directory has a file per rank with a hash of these for each intact image. Damaged images
// are not recorded.
#pragma once

#include <memory>

#include "common/config/train_config.hpp"
#include "trainer/picture_files/data_check.hpp"

namespace ddprun::trainer {

// Begins immediately, with data.decode_threads threads. Checks nothing if a folder cannot be listed; the code that reads the
// images reports that.
std::unique_ptr<DataCheck> check_pictures(const DataConfig& config, const DataCheckPlace& place);

}  // namespace ddprun::trainer
