// Damages a folder of checkpoints in random ways. After each mutation a valid checkpoint is found, and a damaged checkpoint is
// never accepted. By default, the test makes several hundred mutations. With DDPRUN_LONG_TESTS (./dev test --long) it makes
// 10,000. Each mutation has its own seed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <random>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"
#include "tests/trainer/checkpoint/sample_state.hpp"
#include "trainer/checkpoint/checkpoint.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;
using test::read_text;
using test::TemporaryFolder;
using test::write_text;

constexpr std::int64_t kSteps[] = {100, 200, 300};
const std::vector<std::string> kFiles{"manifest.json", "model.safetensors", "optimizer.safetensors"};

class Mutation {
 public:
  Mutation(const fs::path& folder, std::uint32_t seed) : folder_(folder), random_(seed) {}

  // Damages a checkpoint, but never the checkpoint of step `spared`. Returns a description of the damage.
  std::string operator()(std::int64_t spared) {
    std::int64_t step = spared;
    while (step == spared) step = kSteps[random_() % 3];
    const fs::path checkpoint = folder_ / name(step);
    const fs::path file = checkpoint / kFiles[random_() % kFiles.size()];
    switch (random_() % 12) {
      case 0:
        return done("removed", file, [&] { fs::remove(file); });
      case 1:
        return done("swapped with another step's", file, [&] { swap_with_other_step(file, step); });
      case 2:
        return done("renamed to another step", checkpoint, [&] { fs::rename(checkpoint, folder_ / name(step + 7)); });
      case 3:
        return done("made a folder", file, [&] {
          fs::remove(file);
          fs::create_directory(file);
        });
      case 4:
        return done("emptied", checkpoint, [&] {
          fs::remove_all(checkpoint);
          fs::create_directory(checkpoint);
        });
      default:
        return done("changed", file, [&] { change_bytes(file); });
    }
  }

 private:
  static std::string name(std::int64_t step) {
    char text[32];
    std::snprintf(text, sizeof text, "step-%09lld", static_cast<long long>(step));
    return text;
  }

  template <class Act>
  std::string done(const char* what, const fs::path& path, Act&& act) {
    std::error_code none;
    if (fs::is_regular_file(path, none) || fs::is_directory(path, none)) act();
    return std::string(what) + " " + path.lexically_relative(folder_).string();
  }

  void swap_with_other_step(const fs::path& file, std::int64_t step) {
    const std::int64_t other = step == 100 ? 200 : 100;
    std::error_code none;
    const fs::path source = folder_ / name(other) / file.filename();
    if (fs::is_regular_file(source, none) && fs::is_regular_file(file, none)) {
      fs::copy_file(source, file, fs::copy_options::overwrite_existing);
    }
  }

  void change_bytes(const fs::path& file) {
    std::error_code none;
    if (!fs::is_regular_file(file, none)) return;
    std::string text = read_text(file);
    if (text.empty()) return;
    const std::size_t at = random_() % text.size();
    const auto here = text.begin() + static_cast<std::ptrdiff_t>(at);
    switch (random_() % 6) {
      case 0:
        text.resize(at);
        break;
      case 1:
        text += std::string(1 + random_() % 5000, static_cast<char>(random_()));
        break;
      case 2:  // overwrites a block with zeros, as a power loss can leave it
        std::fill(here, text.begin() + static_cast<std::ptrdiff_t>(std::min(text.size(), at + 512)), '\0');
        break;
      case 3:  // removes some bytes in the middle
        text.erase(here, text.begin() + static_cast<std::ptrdiff_t>(std::min(text.size(), at + 1 + random_() % 64)));
        break;
      default:
        for (std::size_t flips = 1 + random_() % 3; flips > 0; --flips) {
          char& byte = text[random_() % text.size()];
          byte = static_cast<char>(byte ^ (1 << random_() % 8));
        }
        break;
    }
    write_text(file, text);
  }

  fs::path folder_;
  std::mt19937 random_;
};

TEST(Mutations, TheNewestUndamagedCheckpointIsAlwaysFound) {
  const bool all = std::getenv("DDPRUN_LONG_TESTS") != nullptr;
  const std::uint32_t count = all ? 10'000 : 600;
  TemporaryFolder place;
  for (const std::int64_t step : kSteps) save_checkpoint(place / "good", sample_state(step), newest(9));

  std::uint32_t noticed = 0;
  for (std::uint32_t seed = 0; seed < count; ++seed) {
    const fs::path folder = place / "bad";
    fs::remove_all(folder);
    fs::copy(place / "good", folder, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    std::mt19937 random(seed);
    const std::int64_t spared = kSteps[random() % 3];
    std::string trace = "seed " + std::to_string(seed) + ", spared " + std::to_string(spared);
    Mutation mutate(folder, seed);
    for (std::uint32_t i = 0; i < 1 + random() % 3; ++i) trace += "; " + mutate(spared);
    SCOPED_TRACE(trace);

    // Chooses the newest valid checkpoint, as a run does.
    std::int64_t chosen = -1;
    bool any_bad = false;
    for (const Candidate& candidate : inspect_checkpoints(folder)) {
      any_bad = any_bad || !candidate.problem.empty();
      if (!candidate.problem.empty()) {
        EXPECT_THROW(load_checkpoint(candidate.path), UsageError);
        continue;
      }
      // An accepted checkpoint must load as the exact state of its step. Changed whitespace in the manifest is harmless.
      EXPECT_TRUE(same_state(load_checkpoint(candidate.path), sample_state(candidate.step)));
      chosen = std::max(chosen, candidate.step);
    }
    EXPECT_GE(chosen, spared);
    noticed += any_bad ? 1 : 0;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(noticed, count * 3 / 5) << "the mutations hardly change anything";
  std::printf("seeds 0 to %u; %u left a bad checkpoint in the folder\n", count - 1, noticed);
}

}  // namespace
}  // namespace ddprun::trainer
