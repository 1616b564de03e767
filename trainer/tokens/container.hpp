// Recognizes compressed files, archives and other formats by their first bytes. A token file has no magic number: its bytes are
// read as tokens or as text. Without this check, a NumPy header or compressed bytes would silently become training data.
#pragma once

#include <string_view>

namespace ddprun::trainer {

// Returns the name of the format, for example "a NumPy array (.npy)", or an empty string if no known format matches. A token
// file may start with any bytes. To avoid false matches, a format is recognized only by at least four fixed bytes, or by a
// shorter magic number together with other fields.
std::string_view container_of(std::string_view bytes);

}  // namespace ddprun::trainer
