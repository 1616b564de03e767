// Tests the SVG file of `ddprun plot`. tests/whole_program/test_report.py tests the command.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "launcher/report_page/plot.hpp"

namespace ddprun {
namespace {

PlottedMetric metric_in(const std::string& text, const std::string& metric) {
  std::istringstream lines(text);
  return read_metric(lines, metric);
}

const char* const kFailedRun = R"({"event":"step","step":10,"loss":2.5}
{"event":"resume","step":10}
{"event":"step","step":20,"loss":null}
{"event":"restart","step":20}
{"event":"step","step":30,"loss":1.5}
{"event":"regroup","step":30}
{"event":"eval","step":30,"loss":9,"accuracy":0.5}
{"event":"ste)";

TEST(Plot, ReadsPointsAndRestartsAfterFailures) {
  const PlottedMetric loss = metric_in(kFailedRun, "loss");
  ASSERT_EQ(loss.points.size(), 2u);
  EXPECT_EQ(loss.points[1].x, 30);
  EXPECT_EQ(loss.points[1].y, 1.5);
  // a restart by the user after a planned stop is not a failure, so it is not in this list
  EXPECT_EQ(loss.resumed, (std::vector<double>{20, 30}));
  EXPECT_EQ(metric_in(kFailedRun, "accuracy").points.size(), 1u);
}

TEST(Plot, MarksFailuresInTheColourOfTheRun) {
  const std::string svg =
      plot_of("loss", {{"a", metric_in(kFailedRun, "loss")}, {"b", {.points = {{10, 1}, {30, 2}}, .resumed = {}}}});
  EXPECT_NE(svg.find("fill=\"#0072b2\"><title>a: resumed at step 20 after a failure</title>"), std::string::npos) << svg;
  EXPECT_EQ(svg.find("<title>b: resumed"), std::string::npos);
  EXPECT_NE(svg.find(">resumed at this step after a failure</text>"), std::string::npos);
}

TEST(Plot, HasUnitsAndNoLegendForMarksWithoutFailures) {
  const std::string svg = plot_of("samples_per_s", {{"b", {.points = {{10, 1}, {30, 2}}, .resumed = {}}}});
  EXPECT_NE(svg.find(">samples_per_s (samples/s)</text>"), std::string::npos) << svg;
  EXPECT_NE(svg.find("text-anchor=\"middle\">step</text>"), std::string::npos);
  EXPECT_EQ(svg.find("failure"), std::string::npos);
}

TEST(Plot, MarksOutsideOfTheCurvesAreOmitted) {
  const std::string svg = plot_of("loss", {{"b", {.points = {{10, 1}, {30, 2}}, .resumed = {5, 31}}}});
  EXPECT_EQ(svg.find("class=\"failure\""), std::string::npos) << svg;
}

}  // namespace
}  // namespace ddprun
