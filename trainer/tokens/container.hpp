// Recognises formats that hold tokens or text inside another format, by their first bytes. A token file is read as bare tokens
// or as text. Without this check a container's header or compressed bytes would silently become training data. Pure.
#pragma once

#include <string_view>

namespace ddprun::trainer {

// For example "a NumPy array (.npy)"; empty for no known container. A format needs a magic of four bytes or more, or further
// header fields, since a bare token file may begin with any bytes.
std::string_view container_of(std::string_view bytes);

}  // namespace ddprun::trainer
