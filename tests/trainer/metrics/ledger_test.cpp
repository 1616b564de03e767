// Tests the ledger, which lists the samples of each step. It must contain each valid step once, no matter which lines a crash
// has left in its files.
#include "trainer/metrics/ledger.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace ddprun::trainer {
namespace {

class LedgerTest : public testing::Test {
 protected:
  LedgerTest() {
    std::string name = (std::filesystem::temp_directory_path() / "ledger-test-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~LedgerTest() override { std::filesystem::remove_all(folder_); }

  std::string content(const std::string& name) const {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  std::filesystem::path folder_;
  std::string trouble_;
  std::function<void(const std::string&)> on_trouble_ = [this](const std::string& text) { trouble_ = text; };
};

TEST_F(LedgerTest, WritesOneLinePerStep) {
  Ledger ledger(folder_, 3, on_trouble_);
  ledger.write(1, 0, 0, std::array<std::int64_t, 3>{5, 0, 17});
  ledger.write(2, 0, 6, {});
  EXPECT_EQ(content("rank-00003.jsonl"),
            "{\"step\":1,\"epoch\":0,\"position\":0,\"samples\":[5,0,17]}\n"
            "{\"step\":2,\"epoch\":0,\"position\":6,\"samples\":[]}\n");
}

TEST_F(LedgerTest, CutsAllRanksPastTheResumePoint) {
  for (const int rank : {0, 1, 2}) {
    Ledger ledger(folder_, rank, on_trouble_);
    for (std::int64_t step = 1; step <= 4; ++step) ledger.write(step, 0, step, std::array{step});
  }
  std::ofstream(folder_ / "rank-00001.jsonl", std::ios::app) << "{\"step\":1,\"ep";
  cut_ledger(folder_, 2, on_trouble_);
  for (const char* name : {"rank-00000.jsonl", "rank-00001.jsonl", "rank-00002.jsonl"}) {
    EXPECT_EQ(content(name),
              "{\"step\":1,\"epoch\":0,\"position\":1,\"samples\":[1]}\n"
              "{\"step\":2,\"epoch\":0,\"position\":2,\"samples\":[2]}\n");
  }
  Ledger again(folder_, 1, on_trouble_);
  again.write(3, 0, 3, std::array<std::int64_t, 1>{9});
  EXPECT_TRUE(content("rank-00001.jsonl").ends_with("{\"step\":3,\"epoch\":0,\"position\":3,\"samples\":[9]}\n"));
}

TEST_F(LedgerTest, CuttingAMissingFolderIsAllowed) {
  EXPECT_NO_THROW(cut_ledger(folder_ / "nowhere", 0, on_trouble_));
}

TEST_F(LedgerTest, AFullDiskIsReportedOnceAndEndsTheLedger) {
  std::filesystem::create_symlink("/dev/full", folder_ / "rank-00000.jsonl");
  Ledger ledger(folder_, 0, on_trouble_);
  ledger.write(1, 0, 0, std::array<std::int64_t, 1>{1});
  EXPECT_NE(trouble_.find("No space left on device"), std::string::npos) << trouble_;
  trouble_.clear();
  ledger.write(2, 0, 0, std::array<std::int64_t, 1>{1});
  EXPECT_EQ(trouble_, "");
}

TEST_F(LedgerTest, AnUncreatableLedgerIsReported) {
  std::ofstream(folder_ / "ledger") << "a file where the folder should be";
  Ledger ledger(folder_ / "ledger", 0, on_trouble_);
  EXPECT_NE(trouble_.find("rank-00000.jsonl"), std::string::npos) << trouble_;
  trouble_.clear();
  ledger.write(1, 0, 0, std::array<std::int64_t, 1>{1});
  EXPECT_EQ(trouble_, "");
}

TEST_F(LedgerTest, CuttingNeedsNoSpace) {
  {
    Ledger ledger(folder_, 0, on_trouble_);
    for (std::int64_t step = 1; step <= 4; ++step) ledger.write(step, 0, step, std::array{step});
  }
  struct stat before {
  }, after{};
  ASSERT_EQ(::stat((folder_ / "rank-00000.jsonl").c_str(), &before), 0);
  cut_ledger(folder_, 2, on_trouble_);
  ASSERT_EQ(::stat((folder_ / "rank-00000.jsonl").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino) << "the same file, not a new one";
  EXPECT_LT(after.st_size, before.st_size);
  EXPECT_EQ(trouble_, "");
}

}  // namespace
}  // namespace ddprun::trainer
