// One IDX file (http://yann.lecun.com/exdb/mnist) as a tensor. The file starts with the big-endian magic number 0x000008DD,
// for unsigned bytes in DD dimensions. The dimensions follow as big-endian 32-bit numbers, then the bytes. dataset.cpp calls
// this code. A file whose data is shorter or longer than the header announces is refused.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trainer/data/inflated_files.hpp"

namespace ddprun::trainer {

enum class IdxKind { kLabels, kImages };  // labels have one dimension, images have three

struct IdxFile {
  std::filesystem::path path;  // the file that was read
  // uint8 [n] or [n, height, width]. Never write to it: for an uncompressed file it is a read-only mapping.
  at::Tensor bytes;
};

// Returns the dimensions in the file's header. The data after the header is not checked. Throws UsageError.
std::vector<std::int64_t> read_idx_dimensions(const std::filesystem::path& dir, const std::string& name, IdxKind kind);

// Reads `dir / name`, or `dir / name.gz` if `dir / name` does not exist. The content, not the name, determines whether the
// file is compressed. `shared` exchanges inflated files with other workers of this machine. Throws UsageError.
IdxFile read_idx_file(const std::filesystem::path& dir, const std::string& name, IdxKind kind,
                      const InflatedFiles& shared = {});

}  // namespace ddprun::trainer
