// Pictures that lie in a folder for each class, as a Source: data.dir has the folders data.train_folder and data.test_folder,
// and each of these the folders of the classes, which count from 0 in the order of their names. Samples are the first picture
// of each class by name, then the second of each, and so on. A sample is read, decoded, resized and cropped when a batch of it
// is made, by some threads of its own (data.decode_threads). Batches are {images float32 [n, 3, image_size, image_size],
// classes int64 [n]}, each sample of weight 1.
#pragma once

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"

namespace ddprun::trainer {

// From the config alone.
Description describe_picture_folder(const DataConfig& config);

// Lists both folders; pictures are *.jpg, *.jpeg and *.png, other files are left alone. Throws UsageError: a folder is missing
// or has not as many classes as data.classes says, a class has no picture or is in one of both folders only. What make() throws
// names the picture's path: it can't be read or is damaged.
Sources read_picture_folders(const DataConfig& config);

}  // namespace ddprun::trainer
