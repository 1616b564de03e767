// Finds the repository's folder, so that tests can read committed files.
#pragma once

#include <filesystem>

namespace ddprun::test {

// The absolute path of this repository. __FILE__ cannot be used instead, because with a compiler cache it is a relative path.
std::filesystem::path repository();

}  // namespace ddprun::test
