// A data source for images in one folder per class. data.dir contains the folders data.train_folder and data.test_folder. Each
// contains one folder per class; the classes are numbered from 0 in the order of their names. The samples are in this order:
// the first image of each class by name, then the second image of each class, and so on. An image is read, decoded, resized and
// cropped when a batch needs it, on data.decode_threads threads. Batches are {images float32 [n, 3, image_size, image_size],
// classes int64 [n]}. Each sample has weight 1.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"
#include "trainer/image_files/decode.hpp"

namespace ddprun::trainer {

// Describes the samples. Uses only the config, and reads no files.
Description describe_image_folder(const DataConfig& config);

// Lists both folders. Images are *.jpg, *.jpeg and *.png; other files are ignored. Throws UsageError if a folder is missing or
// its number of classes is not data.classes. Also throws it if a class has no image or is in only one of the folders. Errors of
// make() name the path of an unreadable or damaged image.
Sources read_image_folders(const DataConfig& config);

// Returns messages to the user about files that are not used, at most one for each of the two folders. Counts at most 100,000
// files.
std::vector<std::string> notes_on_image_folders(const DataConfig& config);

// Returns the paths of all samples, first the paths of the test set. Throws the errors of read_image_folders().
std::vector<std::filesystem::path> files_of_image_folders(const DataConfig& config);

// Reads and decodes an image without resizing it. Throws UsageError with its name if the image is unreadable or damaged. Also
// throws it if one side is so much longer than the other that the resized image would be too large.
PixelRows read_image(const std::filesystem::path& file, const DataConfig& config);

// Returns the length of an image's shorter side after resizing, in pixels.
std::int64_t shorter_side(const DataConfig& config);

}  // namespace ddprun::trainer
