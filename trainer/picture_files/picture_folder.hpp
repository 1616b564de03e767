// Images in one folder per class, as a Source. data.dir has the folders data.train_folder and data.test_folder. Each has the
// class folders; classes count from 0 in the order of their names. Samples are the first image of each class by name, then the
// second of each, and so on. An image is read, decoded, resized and cropped when a batch needs it, by data.decode_threads
// threads of the source. Batches are {images float32 [n, 3, image_size, image_size], classes int64 [n]}. Each sample has weight
// 1.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"
#include "trainer/picture_files/decode.hpp"

namespace ddprun::trainer {

// Uses the config alone.
Description describe_picture_folder(const DataConfig& config);

// Lists both folders. Images are *.jpg, *.jpeg and *.png; other files are ignored. Throws UsageError if a folder is missing or
// its number of classes is not data.classes. Also throws it if a class has no image or is in only one of the folders. Errors of
// make() name the path of an unreadable or damaged image.
Sources read_picture_folders(const DataConfig& config);

// Lines for the user about unused files in both folders. Counts at most 100,000 files.
std::vector<std::string> notes_on_picture_folders(const DataConfig& config);

// The paths of all samples, first those of the test set. Throws the errors of read_picture_folders().
std::vector<std::filesystem::path> files_of_picture_folders(const DataConfig& config);

// An image before it is resized. Throws UsageError with its name if it is unreadable, damaged, or too long for its width.
PixelRows read_picture(const std::filesystem::path& file, const DataConfig& config);

// Pixels of the shorter side after resizing.
std::int64_t shorter_side(const DataConfig& config);

}  // namespace ddprun::trainer
