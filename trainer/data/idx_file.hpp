// One IDX file (http://yann.lecun.com/exdb/mnist) as a tensor: a big-endian magic 0x000008DD for unsigned bytes in DD
// dimensions, the dimensions as big-endian 32-bit numbers, then the bytes. dataset.cpp calls it; what it returns has been
// checked against the file's length in both directions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trainer/data/inflated_files.hpp"

namespace ddprun::trainer {

enum class IdxKind { kLabels, kImages };  // 1 and 3 dimensions

struct IdxFile {
  std::filesystem::path path;  // the file that was read
  at::Tensor bytes;            // uint8 [n] or [n, height, width]; of a plain file it is a read-only mapping: never write to it
};

// The dimensions that the header of that file announces; what follows it is not looked at. Throws UsageError.
std::vector<std::int64_t> read_idx_dimensions(const std::filesystem::path& dir, const std::string& name, IdxKind kind);

// Reads `dir / name`, or `dir / name.gz` where the first does not exist. Whether it is compressed is told by its content.
// `shared`: where other workers of this machine read the same file. Throws UsageError.
IdxFile read_idx_file(const std::filesystem::path& dir, const std::string& name, IdxKind kind,
                      const InflatedFiles& shared = {});

}  // namespace ddprun::trainer
