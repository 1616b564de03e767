// Pictures that lie in a folder for each class, as a Source: data.dir has the folders data.train_folder and data.test_folder,
// and each of these the folders of the classes, which count from 0 in the order of their names. Samples are the first picture
// of each class by name, then the second of each, and so on. A sample is read, decoded, resized and cropped when a batch of it
// is made, by some threads of its own (data.decode_threads). Batches are {images float32 [n, 3, image_size, image_size],
// classes int64 [n]}, each sample of weight 1.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"
#include "trainer/picture_files/decode.hpp"

namespace ddprun::trainer {

// From the config alone.
Description describe_picture_folder(const DataConfig& config);

// Lists both folders; pictures are *.jpg, *.jpeg and *.png, other files are left alone. Throws UsageError: a folder is missing
// or has not as many classes as data.classes says, a class has no picture or is in one of both folders only. What make() throws
// names the picture's path: it can't be read or is damaged.
Sources read_picture_folders(const DataConfig& config);

// Lines for the user about files in both folders that are not used. At most 100,000 are counted.
std::vector<std::string> notes_on_picture_folders(const DataConfig& config);

// The paths of all samples, those of the test set first. Throws as read_picture_folders() does.
std::vector<std::filesystem::path> files_of_picture_folders(const DataConfig& config);

// A picture before it is resized. Throws UsageError naming it: unreadable, damaged, or too long for its width.
PixelRows read_picture(const std::filesystem::path& file, const DataConfig& config);

// Pixels that the shorter side of a picture is resized to.
std::int64_t shorter_side(const DataConfig& config);

}  // namespace ddprun::trainer
