// Formats that hold tokens or text inside something else, by their first bytes. A token file is read as bare tokens or as text,
// so a container would be trained on silently, as the bytes of its compression or of its header. Pure.
#pragma once

#include <string_view>

namespace ddprun::trainer {

// "a NumPy array (.npy)"; empty if it is not a known container. Each is recognized by four bytes or more, or by more fields of
// its header: a bare token file begins with any bytes.
std::string_view container_of(std::string_view bytes);

}  // namespace ddprun::trainer
