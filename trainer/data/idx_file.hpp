// One IDX file (http://yann.lecun.com/exdb/mnist) as a tensor: a big-endian magic 0x000008DD for unsigned bytes in DD
// dimensions, the dimensions as big-endian 32-bit numbers, then the bytes. dataset.cpp calls it; what it returns has been
// checked against the file's length in both directions.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>

namespace ddprun::trainer {

enum class IdxKind { kLabels, kImages };  // 1 and 3 dimensions

struct IdxFile {
  std::filesystem::path path;  // the file that was read
  at::Tensor bytes;            // uint8 [n] or [n, height, width]; of a plain file it is a read-only mapping: never write to it
};

// Reads `dir / name`, or `dir / name.gz` where the first does not exist. Whether it is compressed is told by its content.
// Throws UsageError.
IdxFile read_idx_file(const std::filesystem::path& dir, const std::string& name, IdxKind kind);

}  // namespace ddprun::trainer
