// Loads a checkpoint on several ranks. The ranks of one machine read each byte of it once, and write the tensors directly into
// the training state. trainer/resume/resume.cpp uses this code.
//
// The problem. Each rank needs the whole state. If each rank loads the whole checkpoint, 8 ranks on one node read a checkpoint
// of 84 GB (7 B parameters with AdamW) 8 times, and hold 672 GB of host memory until they have copied it to their GPUs.
//
// The idea. The ranks that read the same file on the same machine form a reading group. They go through each file in windows of
// at most 16 MiB. Each rank of the group reads a part of the window, and the ranks exchange the parts
// (trainer/layout/read_division.hpp). Then each rank has the whole window. It adds the window to the checksum of the file, and
// copies it to the tensors of the state (trainer/resume/tensor_stream.hpp). So a rank needs only 16 MiB in addition to the
// state.
//
// Which ranks form a group. The ranks compare a digest of the boot id of their machine, the path, the device and inode of the
// folder, and the content of the manifest. The number of the node would not be enough: nodes can be containers on one machine
// with different folders at the same path, and mpirun does not provide the number.
//
// Errors. Before the exchange, each rank opens all files and compares their lengths with the manifest. A rank that cannot do
// this is not in a group, so the others do not wait for it. The number of messages depends only on the manifest. A rank that
// cannot read its part during the exchange therefore sends other bytes instead, and the checksums of all ranks then differ from
// the manifest. Each rank whose checksum differs reads the checkpoint again, alone. This read decides whether its copy is
// damaged, and names the file. So after an error on one rank, the other ranks still accept their copies. A process that
// ends during the exchange is a lost worker, as in any collective.
//
// The cost. The ranks send each byte to all other ranks of the machine, over shared memory with two ranks and over Gloo with
// more (docs/internals/decisions/checkpoint/divided-read.md has the measurements). The checkpoint overwrites the state before
// its checksums are known. After an error the state is unusable until another checkpoint is loaded.
//
// The tensors of a checkpoint in pieces (trainer/checkpoint/pieces.hpp) are first joined in host memory, as before.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/parallel/peers.hpp"

namespace ddprun::trainer {

struct CheckpointRead {
  std::shared_ptr<const CheckpointState> saved{};  // null if this rank has not read a checkpoint, or if it is invalid
  std::string problem{};                           // why the checkpoint of this rank is invalid; empty if it is valid
};

// Loads the checkpoint at `path` and verifies its checksums. This call is collective. A rank without a path takes part, but
// reads nothing. The paths and the checkpoints of the ranks may differ. `into` has the tensors of this rank's state, as
// saved_tensors() returns them. A loaded tensor shares memory with the tensor of the same role and name in `into`, if shape and
// type are equal; otherwise it has new memory on the CPU. `into` may be empty. If `problem` is set, the tensors of `into` have
// undefined values.
//
// Throws if the machine lacks memory or descriptors. Throws the process group's errors if another rank is lost.
CheckpointRead read_checkpoint(const std::optional<std::filesystem::path>& path, const CheckpointState& into,
                               const Peers& peers);

}  // namespace ddprun::trainer
