// Finds damaged images before training reads them.
//
// A run reads an image when a batch needs it. A damaged test-set image would be detected only at the first evaluation, maybe
// after hours, and the epoch would be lost. So the ranks divide all images and decode them at startup, first the images of the
// test set. At 256 x 256 pixels two cores decode some 2,000 images per second. If the check takes longer than a time limit,
// the check continues in parallel with training. From then on, a damaged image causes only a warning, since training may not
// need that image for a long time.
//
// When the run starts the next time, an intact image is not decoded again if its name, size and modification time are the
// same. For this purpose, each rank writes a file in the folder "picture-check" of the run directory. The file has a hash of
// the name, size and time of each intact image. It has no entries for damaged images.
#pragma once

#include <memory>

#include "common/config/train_config.hpp"
#include "trainer/image_files/data_check.hpp"

namespace ddprun::trainer {

// Starts the check immediately, with data.decode_threads threads. If a folder cannot be listed, the check ends without an
// error: the code that reads the images reports it.
std::unique_ptr<DataCheck> check_images(const DataConfig& config, const DataCheckPlace& place);

}  // namespace ddprun::trainer
