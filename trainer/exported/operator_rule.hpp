// Decides which operators an exported graph may call. A graph comes from a folder that may have been downloaded, and PyTorch's
// dispatcher has operators that are not arithmetic: aten::from_file maps any file of the user writable, set_ with a storage
// reads memory outside of a tensor, and the `_sparse_*_unsafe` family creates tensors with unchecked indices.
//
// The rule checks the operator's schema instead of a list of names, so it also covers new operators of a later LibTorch. It
// allows an operator under these conditions:
//   - the operator is one of ATen's own (`aten::`);
//   - it takes no storage, stream or generator, and no text, except an argument that selects a variant of the computation
//     (`approximate` of gelu, `rounding_mode` of div, `equation` of einsum);
//   - its name does not begin with '_' (PyTorch's internals, which trust their callers), except the internals that
//     torch.export writes for public functions;
//   - it replaces no tensor's memory (set_, resize_, from_file, record_stream) and checks its indices (no "unsafe" variant
//     with indices).
// The rule does not make a hostile graph harmless: such a graph can still use much memory or time (docs/security.md).
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <vector>

namespace ddprun::trainer {

// Returns the reason why a graph must not call the operator; nullopt if the operator is allowed. The reason is the end of a
// sentence, such as "takes the text argument 'filename'".
std::optional<std::string> reason_to_refuse(const c10::FunctionSchema& schema);

// Checks the arguments of a call. Throws std::domain_error if the operator's kernel would read past the end of an argument.
using ArgumentCheck = void (*)(const std::vector<c10::IValue>& arguments);

// Returns null if the operator's kernel checks its arguments itself.
ArgumentCheck argument_check_of(const c10::FunctionSchema& schema);

}  // namespace ddprun::trainer
