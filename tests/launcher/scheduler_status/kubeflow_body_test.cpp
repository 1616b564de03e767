// Tests the status that ddprun sends to Kubeflow's server: its fields and limits, when it is sent, and the server's
// address.
#include "launcher/scheduler_status/kubeflow_body.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace ddprun::test {
namespace {

using nlohmann::json;

constexpr std::int64_t kTime = 1'796'034'645'123'456'789;  // 2026-11-30T10:30:45Z

json status_of(const ProgressShown& shown, const MetricList& evaluation = {}) {
  return json::parse(kubeflow_status(shown, evaluation, kTime)).at("trainerStatus");
}

ProgressShown progress(std::int64_t step, std::int64_t total) {
  ProgressShown shown;
  shown.progress.step = step;
  shown.progress.steps_total = total;
  return shown;
}

json metric(const char* name, const char* value) {
  return {{"name", name}, {"value", value}};
}

TEST(KubeflowStatus, HasAllKnownFields) {
  ProgressShown shown = progress(512, 1407);
  shown.progress.epoch = 1;
  shown.progress.epochs = 3;
  shown.progress.loss = 0.23471234567;
  shown.progress.lr = 1e-4;
  shown.progress.figures = {{"accuracy", 0.5}};
  shown.seconds_left = 794.6;
  EXPECT_EQ(status_of(shown, {{"loss", 0.25}, {"eval_f1", 1}}),
            json({{"progressPercentage", 36},
                  {"estimatedRemainingSeconds", 795},
                  {"metrics",
                   {metric("step", "512"), metric("epoch", "2"), metric("epochs", "3"), metric("loss", "0.234712"),
                    metric("lr", "0.0001"), metric("accuracy", "0.5"), metric("eval_loss", "0.25"), metric("eval_f1", "1")}},
                  {"lastUpdatedTime", "2026-11-30T10:30:45Z"}}));
}

TEST(KubeflowStatus, OmitsUnknownFields) {
  const json status = status_of(progress(7, 0));
  EXPECT_FALSE(status.contains("progressPercentage"));
  EXPECT_FALSE(status.contains("estimatedRemainingSeconds"));
  EXPECT_EQ(status["metrics"], json::array({metric("step", "7")}));
}

TEST(KubeflowStatus, StaysWithinTheLimitsOfTheServer) {
  ProgressShown shown = progress(20, 10);
  shown.seconds_left = 1e30;
  shown.progress.figures = {{"", 1}, {std::string(65, 'x'), 1}, {"twice", 1}, {"twice", 2}, {"\xff", 1}};
  for (int i = 0; i < 400; ++i) shown.progress.figures.push_back({"metric-" + std::to_string(i), 1});
  const json status = status_of(shown);
  EXPECT_EQ(status["progressPercentage"], 100);
  EXPECT_EQ(status["estimatedRemainingSeconds"], 2147483647);
  EXPECT_EQ(status["metrics"].size(), kMaxStatusMetrics);
  EXPECT_EQ(status["metrics"][1], metric("twice", "1"));
  for (const json& each : status["metrics"]) EXPECT_FALSE(each["name"].get<std::string>().empty());
  EXPECT_EQ(status_of(progress(-5, 10))["progressPercentage"], 0);
}

TEST(KubeflowStatus, LosesMetricsBeforeItIsTooLong) {
  ProgressShown shown = progress(1, 10);
  const std::string escaped(60, '\x01');  // in JSON each of these characters becomes six characters
  for (int i = 100; i < 350; ++i) shown.progress.figures.push_back({escaped + std::to_string(i), 1});
  const std::string body = kubeflow_status(shown, {}, kTime);
  EXPECT_LE(body.size(), kMaxStatusBytes);
  EXPECT_GT(body.size(), kMaxStatusBytes - 1000);
  EXPECT_EQ(json::parse(body)["trainerStatus"]["progressPercentage"], 10);
}

TEST(HttpsUrl, HostPortAndPath) {
  const auto parts = [](std::string_view text) {
    const auto url = parse_https_url(text);
    return url ? std::vector<std::string>{url->host, url->port, url->path} : std::vector<std::string>{};
  };
  using Parts = std::vector<std::string>;
  EXPECT_EQ(parts("https://manager.kubeflow:8082/apis/x/status"), (Parts{"manager.kubeflow", "8082", "/apis/x/status"}));
  EXPECT_EQ(parts("https://a"), (Parts{"a", "443", "/"}));
  EXPECT_EQ(parts("https://a?b=1#c"), (Parts{"a", "443", "/?b=1"}));
  EXPECT_EQ(parts("https://[fd00::1]:1/x"), (Parts{"fd00::1", "1", "/x"}));
  for (const char* text : {"", "http://a/", "https://", "https://:80/", "https://a:x/", "https://a:/", "https://a:123456/",
                           "https://u@a/", "https://a/x y", "https://a/\r\nHost: b", "https://[a"}) {
    EXPECT_EQ(parts(text), Parts{}) << text;
  }
}

TEST(BearerToken, CannotAddHeaders) {
  EXPECT_EQ(bearer_token("abc.def-g_h\n"), "abc.def-g_h");
  for (const char* text : {"", "\n", "a\r\nX-Evil: 1\n", "a b", "\xC3\xBC"})
    EXPECT_EQ(bearer_token(text), std::nullopt) << text;
  EXPECT_EQ(bearer_token(std::string(20'000, 'x')), std::nullopt);
}

}  // namespace
}  // namespace ddprun::test
