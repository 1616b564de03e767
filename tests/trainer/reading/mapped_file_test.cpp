// Tests that a lack of resources is not reported as an error of the config.
#include "trainer/reading/mapped_file.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun::trainer {
namespace {

// Maps the file while `resource` is limited to `limit`. Exits with the exit code of the Error that the mapping throws, or with
// 0 if it throws no error.
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

TEST(MappedFile, ResourceShortageIsNotAUsageError) {
  test::TemporaryFolder folder;
  const std::filesystem::path file = folder / "large.csv";
  test::write_text(file, "1");
  std::filesystem::resize_file(file, std::uintmax_t{1} << 30);  // sparse, so it uses no disk space
  EXPECT_EXIT(map_within(file, RLIMIT_AS, 64 << 20), testing::ExitedWithCode(static_cast<int>(ExitCode::kOutOfMemory)), "");
  EXPECT_EXIT(map_within(file, RLIMIT_NOFILE, 0), testing::ExitedWithCode(static_cast<int>(ExitCode::kInternal)), "");
  EXPECT_EXIT(map_within(folder / "none", RLIMIT_NOFILE, 99), testing::ExitedWithCode(static_cast<int>(ExitCode::kUsage)), "");
}

}  // namespace
}  // namespace ddprun::trainer
