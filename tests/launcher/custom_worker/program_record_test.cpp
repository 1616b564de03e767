// Tests worker.json, which records the user's program that trains in a run directory. If another program is started in that
// directory, ddprun must report it.
#include "launcher/custom_worker/program_record.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

using test::read_text;
using test::write_text;

class ProgramRecord : public testing::Test {
 protected:
  CustomWorker worker(const std::string& content, const std::string& version = "1") {
    write_text(program_, content);
    return {.program = program_,
            .source = "flag --worker",
            .description = {.name = "mine", .version = version, .ddprun = "0.1.0", .libtorch = "2.11.0"}};
  }

  test::TemporaryFolder folder_;
  std::filesystem::path program_ = folder_.path() / "mine";
  std::filesystem::path file_ = folder_.path() / "worker.json";
};

TEST_F(ProgramRecord, RecordsTheProgram) {
  EXPECT_EQ(update_program_record(file_, worker("abc")), "");
  const auto record = nlohmann::json::parse(read_text(file_));
  EXPECT_EQ(record.at("program"), program_.string());
  EXPECT_EQ(record.at("xxh3_128"), "06b05ab6733a618578af5f94892f3950");
  EXPECT_EQ(record.at("version"), "1");
  EXPECT_EQ(update_program_record(file_, worker("abc")), "");
}

TEST_F(ProgramRecord, AnotherBuildIsReportedOnce) {
  update_program_record(file_, worker("abc"));
  const CustomWorker other = worker("abd", "2");
  EXPECT_EQ(update_program_record(file_, other), "the worker program has changed: the last start used mine 1 (" +
                                                     program_.string() +
                                                     ", xxh3_128 06b05ab6733a618578af5f94892f3950), this start uses mine 2 (" +
                                                     program_.string() + ", xxh3_128 " + digest_of_program(program_) + ")");
  EXPECT_EQ(update_program_record(file_, other), "");
}

TEST_F(ProgramRecord, SwitchingToDdptrainIsReported) {
  EXPECT_EQ(update_program_record(file_, std::nullopt), "");
  EXPECT_FALSE(std::filesystem::exists(file_));
  update_program_record(file_, worker("abc"));
  EXPECT_NE(update_program_record(file_, std::nullopt).find("the worker program has changed: the last start used mine 1"),
            std::string::npos);
}

TEST_F(ProgramRecord, ADamagedRecordIsRewritten) {
  write_text(file_, "{");
  EXPECT_EQ(update_program_record(file_, worker("abc")), "");
  EXPECT_EQ(nlohmann::json::parse(read_text(file_)).at("name"), "mine");
}

}  // namespace
}  // namespace ddprun
