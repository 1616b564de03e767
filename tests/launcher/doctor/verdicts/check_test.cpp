// Tests the two output formats of the checks: the table for users, and the lines of --json. The child processes of the doctor
// send the second format too.
#include "launcher/doctor/verdicts/check.hpp"

#include <gtest/gtest.h>

namespace ddprun::doctor {
namespace {

const Checks kMixed{ok("gpus", "0 usable"), warning("clock", "is \"slow\"\nby an hour", "start chrony"),
                    error("data", "bad name \xff", "copy it")};

TEST(Check, TheTableHasTheRemedyBelowTheFinding) {
  EXPECT_EQ(table_of({kMixed[0], kMixed[1]}),
            "ok       gpus               0 usable\n"
            "warning  clock              is \"slow\" by an hour\n"
            "         do: start chrony\n"
            "0 errors, 1 warning\n");
}

TEST(Check, JsonLinesAreReadAgain) {
  const auto again = checks_of_json_lines(json_lines_of(kMixed));
  ASSERT_TRUE(again);
  ASSERT_EQ(again->size(), 3u);
  EXPECT_EQ((*again)[0], kMixed[0]);
  EXPECT_EQ((*again)[1], kMixed[1]);
  EXPECT_EQ((*again)[2].found, "bad name \xEF\xBF\xBD");  // bytes that are not UTF-8 are replaced
  EXPECT_EQ(json_lines_of({kMixed[0]}), R"({"check":"gpus","verdict":"ok","found":"0 usable","do":""})"
                                        "\n");
}

TEST(Check, OtherLinesAreRefused) {
  EXPECT_TRUE(checks_of_json_lines("")->empty());
  for (const char* line :
       {"{", "[]", "7", R"({"check":"a","verdict":"ok","found":"b"})", R"({"check":"a","verdict":"fine","found":"b","do":""})",
        R"({"check":1,"verdict":"ok","found":"b","do":""})"}) {
    EXPECT_FALSE(checks_of_json_lines(line)) << line;
  }
}

TEST(Check, OnlyErrorsSetTheExitCode) {
  EXPECT_EQ(exit_code_of({kMixed[0], kMixed[1]}), 0);
  EXPECT_EQ(exit_code_of(kMixed), 1);
  EXPECT_EQ(exit_code_of({}), 0);
}

TEST(Check, LongTextsAreCut) {
  EXPECT_LT(warning("job", std::string(5000, 'x'), std::string(5000, 'y')).found.size(), 700u);
}

TEST(Check, BytesHaveAReadableUnit) {
  EXPECT_EQ(text_of_bytes(0), "0 KiB");
  EXPECT_EQ(text_of_bytes(64ULL << 20), "64 MiB");
  EXPECT_EQ(text_of_bytes(3ULL << 30), "3072 MiB");
  EXPECT_EQ(text_of_bytes(24ULL << 30), "24 GiB");
}

}  // namespace
}  // namespace ddprun::doctor
