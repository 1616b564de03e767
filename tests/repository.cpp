#include "tests/repository.hpp"

namespace ddprun::test {

std::filesystem::path repository() {
  return DDPRUN_REPOSITORY;
}

}  // namespace ddprun::test
