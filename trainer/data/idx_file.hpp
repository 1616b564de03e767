// One IDX file (http://yann.lecun.com/exdb/mnist) as a tensor. The file has a big-endian magic 0x000008DD for unsigned bytes in
// DD dimensions, the dimensions as big-endian 32-bit numbers, then the bytes. Called by dataset.cpp. The data is exactly as
// long as the header announces; other files are refused.
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
  at::Tensor bytes;            // uint8 [n] or [n, height, width]; a read-only mapping if the file is plain: never write to it
};

// The dimensions in the file's header; the data after it is not checked. Throws UsageError.
std::vector<std::int64_t> read_idx_dimensions(const std::filesystem::path& dir, const std::string& name, IdxKind kind);

// Reads `dir / name`, or `dir / name.gz` if the first does not exist. The content and not the name shows whether the file is
// compressed. `shared`: exchange with other workers of this machine that read the same file. Throws UsageError.
IdxFile read_idx_file(const std::filesystem::path& dir, const std::string& name, IdxKind kind,
                      const InflatedFiles& shared = {});

}  // namespace ddprun::trainer
