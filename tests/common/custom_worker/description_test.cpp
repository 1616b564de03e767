// Tests that the description of a worker program can be written and parsed again. Invalid text must be refused with a one-line
// message.
#include "common/custom_worker/description.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

const WorkerDescription kWorker{.name = "mine",
                                .version = "2",
                                .ddprun = "0.1.0",
                                .libtorch = "2.11.0",
                                .channel_major = 1,
                                .channel_minor = 1,
                                .keys = {{.name = "deep", .value = true, .help = "H."},
                                         {.name = "width", .value = 3, .help = "H.", .min = 1, .max = 9, .may_change = true},
                                         {.name = "noise", .value = 0.5, .help = "H.", .min = 0, .above_min = true},
                                         {.name = "loss", .value = "b", .help = "H.", .choices = {"a", "b"}},
                                         {.name = "file", .value = "", .help = "H.", .path = true, .required = true},
                                         {.name = "sizes", .value = std::vector<std::int64_t>{1, 2}, .help = "H."},
                                         {.name = "names", .value = std::vector<std::string>{"x"}, .help = "H."}}};

TEST(Description, RoundTrips) {
  EXPECT_EQ(parse_description(description_json(kWorker)), kWorker);
}

TEST(Description, FieldsOfLaterVersionsAreIgnored) {
  auto json = nlohmann::json::parse(description_json(kWorker));
  json["more"] = 1;
  json["keys"][0]["more"] = 1;
  EXPECT_EQ(parse_description(json.dump()), kWorker);
}

TEST(Description, GarbageIsRefusedInOneLine) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      parse_description(text);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  const auto changed = [](const char* pointer, const nlohmann::json& value) {
    auto json = nlohmann::json::parse(description_json(kWorker));
    json[nlohmann::json::json_pointer(pointer)] = value;
    return json.dump();
  };
  EXPECT_EQ(refusal(""), "expected a JSON object, found nothing");
  EXPECT_EQ(refusal("training...\n" + std::string(100, 'x')),
            "expected a JSON object, found 'training...\\u000a" + std::string(48, 'x') + "...'");
  EXPECT_EQ(refusal("[1]"), "expected a JSON object, found '[1]'");
  EXPECT_EQ(refusal("{}"), "expected \"format\": 1, found none");
  EXPECT_EQ(refusal(changed("/format", 2)), "expected \"format\": 1, found 2");
  EXPECT_EQ(refusal(changed("/name", 2)), "its JSON does not describe a worker program: a value in it has an unexpected type");
  EXPECT_EQ(refusal(changed("/keys/0/type", "tensor")), "a key has the type 'tensor', which this ddprun does not support");
  EXPECT_EQ(refusal(changed("/keys/1/default", 11)),
            "key 'width' of the worker program's table: expected a default that is an integer from 1 to 9, found 11");
  EXPECT_EQ(refusal(changed("/keys/1/default", nullptr)),
            "key 'width': expected a default value or \"required\": true, found null");
  EXPECT_EQ(refusal(changed("/keys", 3)), "its JSON does not describe a worker program: a value in it has an unexpected type");
}

}  // namespace
}  // namespace ddprun
