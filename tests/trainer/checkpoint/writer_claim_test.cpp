// Tests the checkpoint claim, which is a file that names the newest writer of a checkpoint folder. Only this writer may
// publish checkpoints.
#include "trainer/checkpoint/writer_claim.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"
#include "tests/trainer/checkpoint/sample_state.hpp"
#include "trainer/checkpoint/checkpoint.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

TEST(WriterClaim, CreatesAMissingFolder) {
  TemporaryFolder folder;
  WriterClaim claim(folder / "checkpoints", {.term = 1, .restart = 0});
  EXPECT_EQ(claim.take(), "");
  EXPECT_NO_THROW(claim.check());
}

TEST(WriterClaim, ALaterRoundSupersedesAnEarlierOne) {
  TemporaryFolder folder;
  WriterClaim first(folder.path(), {.term = 1, .restart = 0}), second(folder.path(), {.term = 1, .restart = 1});
  first.take();
  second.take();
  EXPECT_NO_THROW(second.check());
  EXPECT_THROW(first.check(), SupersededError);
  EXPECT_THROW(first.take(), SupersededError);
  EXPECT_NO_THROW(second.check());
}

TEST(WriterClaim, ALaterJobSupersedesAnEarlierOne) {
  TemporaryFolder folder;
  WriterClaim first(folder.path(), {.term = 1, .restart = 9}), second(folder.path(), {.term = 2, .restart = 0});
  first.take();
  second.take();
  EXPECT_THROW(first.check(), SupersededError);
  EXPECT_NO_THROW(second.check());
}

TEST(WriterClaim, TheLastClaimOfAGenerationWins) {
  TemporaryFolder folder;
  WriterClaim first(folder.path(), {}), second(folder.path(), {});
  first.take();
  second.take();
  EXPECT_THROW(first.check(), SupersededError);
}

TEST(WriterClaim, ASecondWriterKeepsAnEqualGeneration) {
  TemporaryFolder folder;
  WriterClaim first(folder.path(), {.term = 1, .restart = 1}), second(folder.path(), {.term = 1, .restart = 1});
  first.take();
  EXPECT_NO_THROW(second.check_generation());
  EXPECT_NO_THROW(first.check());
  WriterClaim later(folder.path(), {.term = 1, .restart = 2});
  later.take();
  EXPECT_THROW(second.check_generation(), SupersededError);
}

TEST(WriterClaim, ASecondWriterReplacesAnEarlierGeneration) {
  TemporaryFolder folder;
  WriterClaim earlier(folder.path(), {.term = 1, .restart = 0}), second(folder.path(), {.term = 1, .restart = 1});
  earlier.take();
  EXPECT_NO_THROW(second.check_generation());
  EXPECT_THROW(earlier.check(), SupersededError);
}

TEST(WriterClaim, ErrorsNameTheHolder) {
  TemporaryFolder folder;
  WriterClaim first(folder.path(), {}), second(folder.path(), {.term = 1});
  first.take();
  second.take();
  try {
    first.check();
    FAIL();
  } catch (const SupersededError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("process " + std::to_string(::getpid())), std::string::npos) << text;
    EXPECT_NE(text.find("it is running"), std::string::npos) << text;
    EXPECT_EQ(error.code(), ExitCode::kSuperseded);
  }
}

TEST(WriterClaim, ErrorsStateThatTheHolderHasEnded) {
  TemporaryFolder folder;
  const pid_t writer = ::fork();
  if (writer == 0) {
    WriterClaim(folder.path(), {.term = 1}).take();
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(writer, nullptr, 0), writer);
  try {
    WriterClaim(folder.path(), {}).take();
    FAIL();
  } catch (const SupersededError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("process " + std::to_string(writer)), std::string::npos) << text;
    EXPECT_NE(text.find("it has ended"), std::string::npos) << text;
    EXPECT_NE(text.find("Start the run again"), std::string::npos) << text;
  }
}

TEST(WriterClaim, AMissingClaimIsCreatedByTheNextSave) {
  TemporaryFolder folder;
  WriterClaim claim(folder / "c", {});
  EXPECT_NO_THROW(claim.check());
  fs::remove_all(folder / "c");
  EXPECT_NO_THROW(claim.check());
  EXPECT_TRUE(fs::exists(folder / "c"));
}

TEST(WriterClaim, ATornClaimIsRewritten) {
  TemporaryFolder folder;
  test::write_text(folder / ".writer", "{\"term\": 7");
  WriterClaim claim(folder.path(), {});
  EXPECT_EQ(claim.take(), "");
  EXPECT_NO_THROW(claim.check());
}

TEST(WriterClaim, RemovesLeftoversOfEarlierWriters) {
  TemporaryFolder folder;
  for (const char* name : {".tmp-step-000000100-77", ".tmp-remove-step-000000050-77"}) {
    test::write_text(folder / name / "model.safetensors", "half");
  }
  fs::create_symlink("step-000000050", folder / ".tmp-latest-77");
  save_checkpoint(folder.path(), sample_state(50), newest(3));
  WriterClaim claim(folder.path(), {});
  EXPECT_EQ(claim.take(), "");
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path())) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{".writer", "latest", "step-000000050"}));
}

// The old writer is suspended at each stage of its save, and continues after a new writer has started. It must not publish.
TEST(WriterClaim, AnOldWriterCannotPublish) {
  for (const std::string stage : {"begun", "model-half", "model-written", "optimizer-written", "manifest-written"}) {
    // If `checked` is true, the old writer is suspended after its check at this stage, and if false, before the check.
    for (const bool checked : {false, true}) {
      SCOPED_TRACE(stage + (checked ? ", after its check" : ", before its check"));
      TemporaryFolder folder;
      WriterClaim old_writer(folder.path(), {.term = 1}), new_writer(folder.path(), {.term = 2});
      old_writer.take();
      save_checkpoint(folder.path(), sample_state(100), newest(3));
      const auto save = [&] {
        save_checkpoint(folder.path(), sample_state(200), newest(3), [&](const char* reached) {
          const bool now = stage == reached;
          if (now && !checked) new_writer.take();
          if (std::strcmp(reached, "model-half") != 0) old_writer.check();
          if (now && checked) new_writer.take();
        });
      };
      EXPECT_ANY_THROW(save());
      const auto found = inspect_checkpoints(folder.path());
      ASSERT_EQ(found.size(), 1U);
      EXPECT_EQ(found.front().step, 100);
      EXPECT_EQ(found.front().problem, "");
      EXPECT_EQ(fs::read_symlink(folder / "latest"), "step-000000100");
      EXPECT_NO_THROW(new_writer.check());
    }
  }
}

// The old writer has already published its checkpoint when the new writer starts. The checkpoint is valid, but the old writer
// must not change anything any more.
TEST(WriterClaim, AnOldWriterChangesNothingAfterPublishing) {
  for (const std::string stage : {"renamed", "latest-moved"}) {
    SCOPED_TRACE(stage);
    TemporaryFolder folder;
    WriterClaim old_writer(folder.path(), {.term = 1}), new_writer(folder.path(), {.term = 2});
    old_writer.take();
    save_checkpoint(folder.path(), sample_state(100), newest(3));
    EXPECT_THROW(save_checkpoint(folder.path(), sample_state(200), newest(1),
                                 [&](const char* reached) {
                                   if (stage == reached) new_writer.take();
                                   old_writer.check();
                                 }),
                 SupersededError);
    EXPECT_TRUE(fs::exists(folder / "step-000000100")) << "retention of an old writer";
    EXPECT_TRUE(fs::exists(folder / "step-000000200"));
  }
}

}  // namespace
}  // namespace ddprun::trainer
