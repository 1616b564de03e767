// Tests which files `ddprun init cpp` writes, and when it refuses to write files. tests/whole_program/test_sdk.py builds the
// files.
#include "launcher/custom_worker/new_project.hpp"

#include <gtest/gtest.h>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

using test::read_text;
using test::write_text;

std::string init_refusal(const std::filesystem::path& folder) {
  try {
    write_new_project(folder);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(NewProject, HasFourFilesWithItsName) {
  const test::TemporaryFolder folder;
  const auto project = folder / "deep/my-project";
  EXPECT_EQ(write_new_project(project), (std::vector<std::string>{"CMakeLists.txt", "README.md", "task.cpp", "train.json"}));
  for (const char* file : {"CMakeLists.txt", "README.md", "task.cpp", "train.json"}) {
    const std::string text = read_text(project / file);
    EXPECT_EQ(text.find("@NAME@"), std::string::npos) << file;
    EXPECT_NE(text.find("my-project"), std::string::npos) << file;
  }
}

TEST(NewProject, IsWrittenOnlyIntoAnEmptyFolder) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "mine");
  write_new_project(folder / "mine/");
  EXPECT_EQ(init_refusal(folder / "mine"),
            "init: " + (folder / "mine").string() + " is not empty; expected a new or an empty folder");
  write_text(folder / "file", "x");
  EXPECT_EQ(init_refusal(folder / "file"),
            "init: " + (folder / "file").string() + " is a file; expected a new or an empty folder");
  for (const char* name : {"2fast", "my project", "a.b", "caf\xc3\xa9"}) {
    EXPECT_NE(init_refusal(folder / name).find("expected a folder whose name is a valid program name"), std::string::npos)
        << name;
    EXPECT_FALSE(std::filesystem::exists(folder / name));
  }
}

}  // namespace
}  // namespace ddprun
