// Tests how an error of a data source is classified. It must not count as a lost rank or as a batch that is too large.
#include "trainer/failure/failure.hpp"

#include <gtest/gtest.h>

#include <exception>
#include <new>
#include <stdexcept>

#include "common/base/error.hpp"
#include "trainer/reading/source_error.hpp"

namespace ddprun::trainer {
namespace {

template <class Thrown>
Failure of_source(const Thrown& thrown) {
  try {
    try {
      throw thrown;
    } catch (...) {
      rethrow_as_source_error();
    }
  } catch (...) {
    return classify(std::current_exception());
  }
}

TEST(Classify, ARefusingDataServerIsNotALostPeer) {
  const std::runtime_error refused("samples.example:80: Connection refused");
  EXPECT_EQ(classify(std::make_exception_ptr(refused)).kind, channel::ErrorKind::kLostPeer);
  const Failure failure = of_source(refused);
  EXPECT_EQ(failure.kind, channel::ErrorKind::kException);
  EXPECT_EQ(failure.message, refused.what());
  EXPECT_TRUE(failure.of_data);
}

TEST(Classify, ADataSourcesMemoryIsNotTheBatchs) {
  EXPECT_FALSE(classify(std::make_exception_ptr(std::bad_alloc())).of_data);
  const Failure failure = of_source(std::bad_alloc());
  EXPECT_EQ(failure.kind, channel::ErrorKind::kOutOfMemory);
  EXPECT_EQ(failure.exit_code, static_cast<int>(ExitCode::kOutOfMemory));
  EXPECT_TRUE(failure.of_data);
  EXPECT_EQ(of_source(std::runtime_error("not enough memory in the cache of samples")).kind, channel::ErrorKind::kException);
}

TEST(Classify, ADataSourcesUsageErrorIsKept) {
  const Failure failure = of_source(UsageError("line 3 has no label"));
  EXPECT_EQ(failure.exit_code, 2);
  EXPECT_EQ(failure.message, "line 3 has no label");
  EXPECT_FALSE(failure.of_data);
}

}  // namespace
}  // namespace ddprun::trainer
