// Tests the conversion of a status to OpenMetrics. Each series must appear once, even if nodes report different states.
#include "launcher/query/local/openmetrics.hpp"

#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace ddprun {
namespace {

using nlohmann::json;

json node(const char* host, int round, int rank, int step) {
  return {{"host", host},
          {"round", round},
          {"progress", {{"step", step}, {"loss", 0.5}}},
          {"workers", {{{"rank", rank}, {"state", "running"}, {"step", step}}, {{"rank", rank}, {"state", "running"}}}}};
}

TEST(OpenMetrics, ASeriesAppearsOnceFromTheNewestRound) {
  const json job{{"title", "digits"}, {"state", "running"}, {"nodes", 2}};
  // Rank 0 has moved to another node, but the first node has not received the new round yet. Both nodes have the same host
  // name.
  const std::string text = openmetrics_of(job, {node("host", 3, 0, 40), node("host", 4, 0, 50)});
  std::set<std::string> series;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line[0] == '#') continue;
    EXPECT_TRUE(series.insert(line.substr(0, line.rfind(' '))).second) << line;
  }
  EXPECT_NE(text.find("ddprun_step{title=\"digits\",run_dir=\"\"} 50\n"), std::string::npos) << text;
  EXPECT_NE(text.find("rank=\"0\"} 50\n"), std::string::npos) << text;
  EXPECT_EQ(text.find(" 40\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace ddprun
