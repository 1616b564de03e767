// Tests the reader of a metrics.jsonl that grows while it is read.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "launcher/report_page/curves.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

class CurveReaderTest : public testing::Test {
 protected:
  static std::string step_line(int step, double loss) {
    return R"({"event":"step","step":)" + std::to_string(step) + R"(,"loss":)" + std::to_string(loss) + "}\n";
  }
  void append(const std::string& text) { std::ofstream(file_, std::ios::app) << text; }
  void replace(const std::string& text) { std::ofstream(file_, std::ios::trunc) << text; }
  std::vector<double> steps() {
    std::vector<double> found;
    for (const svg::Point& point : reader_.read().loss) found.push_back(point.x);
    return found;
  }

  using Steps = std::vector<double>;
  test::TemporaryFolder folder_;
  std::filesystem::path file_ = folder_ / "metrics.jsonl";
  CurveReader reader_{file_};
};

TEST_F(CurveReaderTest, ReadsOnlyWholeLinesAndContinues) {
  EXPECT_EQ(steps(), Steps());  // the file does not exist yet
  append(step_line(1, 3) + step_line(2, 2).substr(0, 20));
  EXPECT_EQ(steps(), Steps{1});
  append(step_line(2, 2).substr(20) + step_line(3, 1));
  EXPECT_EQ(steps(), (Steps{1, 2, 3}));
  EXPECT_EQ(steps(), (Steps{1, 2, 3}));
}

TEST_F(CurveReaderTest, ReadsAgainAfterLinesWereRemoved) {
  append(step_line(1, 3) + step_line(2, 2) + step_line(3, 1));
  EXPECT_EQ(steps(), (Steps{1, 2, 3}));
  replace(step_line(1, 3));
  EXPECT_EQ(steps(), Steps{1});
}

// The file is longer than before, so its size alone does not reveal that lines were removed.
TEST_F(CurveReaderTest, ReadsAgainAfterLinesWereReplacedByMore) {
  append(step_line(1, 3) + step_line(2, 2) + step_line(3, 1));
  EXPECT_EQ(steps(), (Steps{1, 2, 3}));
  replace(step_line(1, 3) + R"({"event":"restart","step":1})" + "\n" + step_line(2, 2.5) + step_line(3, 1.5) + step_line(4, 1));
  EXPECT_EQ(steps(), (Steps{1, 2, 3, 4}));
  EXPECT_EQ(reader_.read().loss.at(1).y, 2.5);
  EXPECT_EQ(reader_.read().resumed, std::vector<double>{1});
}

TEST_F(CurveReaderTest, AFolderHasNoCurves) {
  std::filesystem::create_directory(file_);
  EXPECT_EQ(steps(), Steps());
}

}  // namespace
}  // namespace ddprun
