// A lack of resources is reported as such, and not as a mistake in a config.
#include "trainer/data/mapped_file.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun::trainer {
namespace {

// The result of a process that has at most `limit` of a resource and maps the file.
[[noreturn]] void map_within(const std::filesystem::path& file, __rlimit_resource resource, rlim_t limit) {
  const rlimit few{.rlim_cur = limit, .rlim_max = limit};
  ::setrlimit(resource, &few);
  try {
    const MappedFile mapped(file);
  } catch (const Error& error) {
    ::_exit(static_cast<int>(error.code()));
  }
  ::_exit(0);
}

TEST(MappedFile, WhatTheMachineLacksIsNoMistakeOfTheUsers) {
  test::TemporaryFolder folder;
  const std::filesystem::path file = folder / "large.csv";
  test::write_text(file, "1");
  std::filesystem::resize_file(file, std::uintmax_t{1} << 30);  // sparse: no block is allocated
  EXPECT_EXIT(map_within(file, RLIMIT_AS, 64 << 20), testing::ExitedWithCode(static_cast<int>(ExitCode::kOutOfMemory)), "");
  EXPECT_EXIT(map_within(file, RLIMIT_NOFILE, 0), testing::ExitedWithCode(static_cast<int>(ExitCode::kInternal)), "");
  EXPECT_EXIT(map_within(folder / "none", RLIMIT_NOFILE, 99), testing::ExitedWithCode(static_cast<int>(ExitCode::kUsage)), "");
}

}  // namespace
}  // namespace ddprun::trainer
