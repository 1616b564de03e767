// Tests how checkpoints are published, kept, found and refused, and how bad checkpoints are renamed.
#include "trainer/checkpoint/checkpoint.hpp"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"
#include "tests/trainer/checkpoint/sample_state.hpp"
#include "trainer/checkpoint/hashed_file.hpp"
#include "trainer/checkpoint/manifest.hpp"
#include "trainer/checkpoint/pieces.hpp"
#include "trainer/checkpoint/safetensors.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;
using test::read_text;
using test::TemporaryFolder;
using test::write_text;

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

std::string latest(const fs::path& folder) {
  return fs::read_symlink(folder / "latest").string();
}

void flip_bit(const fs::path& file, std::size_t byte) {
  std::string text = read_text(file);
  text.at(byte) = static_cast<char>(text.at(byte) ^ 1);
  write_text(file, text);
}

TEST(Checkpoint, LoadsWhatWasSaved) {
  TemporaryFolder folder;
  CheckpointState state = sample_state(400);
  state.finished = true;
  state.evaluation = {{"accuracy", 0.1 + 0.2}, {"loss", 1.0 / 3}};

  const SaveResult saved = save_checkpoint(folder / "checkpoints", state, newest(3));

  EXPECT_EQ(saved.path, folder / "checkpoints" / "step-000000400");
  EXPECT_EQ(saved.note, "");
  EXPECT_TRUE(same_state(load_checkpoint(saved.path), state));
}

TEST(Checkpoint, ConsistsOfThreeFilesAndTheLatestLink) {
  TemporaryFolder folder;
  const SaveResult saved = save_checkpoint(folder.path(), sample_state(400), newest(3));

  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"latest", "step-000000400"}));
  EXPECT_EQ(names_in(saved.path), (std::set<std::string>{"manifest.json", "model.safetensors", "optimizer.safetensors"}));
  EXPECT_EQ(latest(folder.path()), "step-000000400");
  std::int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(saved.path)) bytes += static_cast<std::int64_t>(entry.file_size());
  EXPECT_EQ(saved.bytes, bytes);
}

TEST(Checkpoint, ManifestDescribesTheRunAndTheFiles) {
  TemporaryFolder folder;
  const SaveResult saved = save_checkpoint(folder.path(), sample_state(400), newest(3));

  const auto manifest = nlohmann::json::parse(read_text(saved.path / "manifest.json"));

  EXPECT_EQ(manifest["version"], 1);
  EXPECT_EQ(manifest["step"], 400);
  EXPECT_EQ(manifest["finished"], false);
  EXPECT_EQ(manifest["config_epochs"], 3);
  EXPECT_EQ(manifest["config_max_steps"], 0);
  EXPECT_EQ(manifest["seed"], (std::uint64_t{1} << 53) - 1);
  EXPECT_EQ(manifest["bucket_order"], nlohmann::json::parse("[[3,2],[1,0]]"));
  const std::string model = read_text(saved.path / "model.safetensors");
  EXPECT_EQ(manifest["files"]["model.safetensors"]["bytes"], model.size());
  EXPECT_EQ(manifest["files"]["model.safetensors"]["xxh3_128"], xxh3_128_of(model));
}

TEST(Checkpoint, ChecksumsMatchXxh128sum) {
  EXPECT_EQ(xxh3_128_of(""), "99aa06d3014798d86001c324468d497f");  // hash of an empty input in xxHash's documentation
}

TEST(Checkpoint, KeepsTheNewest) {
  TemporaryFolder folder;
  for (const std::int64_t step : {100, 200, 300, 400}) save_checkpoint(folder.path(), sample_state(step), newest(2));

  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"latest", "step-000000300", "step-000000400"}));
  EXPECT_EQ(latest(folder.path()), "step-000000400");
}

// If a user copies a run directory and the copy follows links, `latest` becomes a folder. Checkpoints must still be saved and
// found.
TEST(Checkpoint, AFolderInPlaceOfTheLinkIsReported) {
  TemporaryFolder folder;
  fs::create_directories(folder / "latest");
  test::write_text(folder / "latest" / "manifest.json", "{}");
  for (const std::int64_t step : {100, 200, 300}) {
    const SaveResult saved = save_checkpoint(folder.path(), sample_state(step), newest(2));
    EXPECT_NE(saved.note.find("latest is a folder; expected a symbolic link to the newest checkpoint. Remove the folder: the "
                              "next save creates the link"),
              std::string::npos)
        << saved.note;
  }
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"latest", "step-000000200", "step-000000300"}));
  fs::remove_all(folder / "latest");
  EXPECT_EQ(save_checkpoint(folder.path(), sample_state(400), newest(2)).note, "");
  EXPECT_EQ(latest(folder.path()), "step-000000400");
}

TEST(Checkpoint, NeverRemovesTheJustWrittenOne) {
  TemporaryFolder folder;
  save_checkpoint(folder.path(), sample_state(900), newest(1));

  save_checkpoint(folder.path(), sample_state(500), newest(1));

  EXPECT_TRUE(fs::exists(folder / "step-000000500"));
  EXPECT_EQ(latest(folder.path()), "step-000000500");
}

TEST(Checkpoint, ASecondSaveKeepsTensorsAndUpdatesTheEnd) {
  TemporaryFolder folder;
  const SaveResult first = save_checkpoint(folder.path(), sample_state(400), newest(3));
  const auto written = fs::last_write_time(first.path / "model.safetensors");
  CheckpointState state = sample_state(400);
  state.finished = true;
  state.config_epochs = 5;

  const SaveResult second = save_checkpoint(folder.path(), state, newest(3));

  EXPECT_EQ(fs::last_write_time(second.path / "model.safetensors"), written);
  EXPECT_TRUE(same_state(load_checkpoint(second.path), state));
}

TEST(Checkpoint, AnotherWorldSizeIsNotMixedIn) {
  TemporaryFolder folder;
  save_checkpoint(folder.path(), sample_state(400), newest(3));
  CheckpointState other = sample_state(400);
  other.world_size = 1;
  other.finished = true;

  const SaveResult saved = save_checkpoint(folder.path(), other, newest(3));

  CheckpointState expected = sample_state(400);
  expected.finished = true;  // without this flag, the finished run would repeat the last evaluation each time it is started
  EXPECT_TRUE(same_state(load_checkpoint(saved.path), expected));
}

// A run ends at a step whose checkpoint was saved before the run could know that it ends. The checkpoint has a different world
// size, and its evaluation is marked as failed. Even in this case, the end of the run must be recorded in the checkpoint.
TEST(Checkpoint, TheRunEndIsRecordedForAnyWriter) {
  TemporaryFolder folder;
  CheckpointState before = sample_state(400);
  before.values = {{"evaluation.owed", 1}};
  save_checkpoint(folder.path(), before, newest(3));
  CheckpointState now = sample_state(400);
  now.world_size = 1;
  now.intra_op_threads = 7;
  now.finished = true;
  now.evaluation = {{"loss", 0.5}};
  const CheckpointState found = load_checkpoint(save_checkpoint(folder.path(), now, newest(3)).path);
  EXPECT_TRUE(found.finished);
  EXPECT_EQ(found.values, StateValues{});
  EXPECT_EQ(found.evaluation, now.evaluation);
  EXPECT_EQ(found.world_size, 2) << "what its tensors were computed with";
  now.seed = 3;
  now.finished = false;
  EXPECT_TRUE(load_checkpoint(save_checkpoint(folder.path(), now, newest(3)).path).finished)
      << "the end of another run does not matter";
}

TEST(Checkpoint, ASecondSaveAddsAMissingEvaluation) {
  TemporaryFolder folder;
  CheckpointState state = sample_state(400);
  state.evaluation.reset();
  state.values = {{"evaluation.owed", 1}};
  save_checkpoint(folder.path(), state, newest(3));
  state.evaluation = {{"loss", 0.5}};
  state.values.clear();
  const CheckpointState found = load_checkpoint(save_checkpoint(folder.path(), state, newest(3)).path);
  EXPECT_EQ(found.evaluation, state.evaluation);
  EXPECT_EQ(found.values, StateValues{});
}

TEST(Checkpoint, ASecondSaveKeepsAnEarlierEvaluation) {
  TemporaryFolder folder;
  CheckpointState state = sample_state(400);
  state.evaluation = {{"loss", 0.5}};
  const auto first = state.evaluation;
  save_checkpoint(folder.path(), state, newest(3));
  state.evaluation = {{"loss", 0.25}};
  const CheckpointState found = load_checkpoint(save_checkpoint(folder.path(), state, newest(3)).path);
  EXPECT_EQ(found.evaluation, first);
}

// Checkpoints of another run are neither counted nor removed, because they may be the only copy of that run's state.
TEST(Checkpoint, CheckpointsOfAnotherTrainingAreNotCounted) {
  TemporaryFolder folder;
  const auto save = [&](std::int64_t step, const std::string& run, double accuracy, const Retention& retention = newest(9)) {
    CheckpointState state = sample_state(step);
    state.run = run;
    state.earlier = {{.id = "bbbbbbbbbbbbbbbb", .until = 40}};
    state.evaluation = {{"accuracy", accuracy}};
    save_checkpoint(folder.path(), state, retention);
  };
  save(10, "cccccccccccccccc", 0.99);  // a checkpoint of another run
  save(20, "bbbbbbbbbbbbbbbb", 0.8);   // the run from whose step 40 this run started
  save(30, "bbbbbbbbbbbbbbbb", 0.2);
  save(50, "bbbbbbbbbbbbbbbb", 0.98);  // after step 40, so it is not a part of this run's history
  save(60, kSampleRun, 0.5, {.newest = 1, .best = 1});
  EXPECT_EQ(names_in(folder.path()),
            (std::set<std::string>{"latest", "step-000000010", "step-000000020", "step-000000050", "step-000000060"}));
}

TEST(Checkpoint, SavingTheStepSupersedesAnotherRuns) {
  TemporaryFolder folder;
  CheckpointState other = sample_state(400);
  other.run = "bbbbbbbbbbbbbbbb";
  other.model.front().tensor.add_(1);
  save_checkpoint(folder.path(), other, newest(3));

  const SaveResult saved = save_checkpoint(folder.path(), sample_state(400), newest(3));

  EXPECT_TRUE(same_state(load_checkpoint(saved.path), sample_state(400)));
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"latest", "step-000000400", "step-000000400.superseded"}));
}

TEST(Checkpoint, EqualCopiesOfTwoRunsHaveEqualContent) {
  TemporaryFolder folder;
  CheckpointState other = sample_state(400);
  other.run.clear();
  save_checkpoint(folder / "one", sample_state(400), newest(3));
  save_checkpoint(folder / "other", other, newest(3));

  const Candidate one = inspect_checkpoints(folder / "one").front(), two = inspect_checkpoints(folder / "other").front();

  EXPECT_EQ(one.content, two.content);
  EXPECT_EQ(one.run, kSampleRun);
  EXPECT_EQ(two.run, "");
  EXPECT_EQ(read_text(folder / "other" / "step-000000400" / "manifest.json").find("\"run\""), std::string::npos);
}

TEST(Checkpoint, SavingTheStepReplacesABadCheckpoint) {
  TemporaryFolder folder;
  const SaveResult saved = save_checkpoint(folder.path(), sample_state(400), newest(3));
  flip_bit(saved.path / "model.safetensors", 300);

  save_checkpoint(folder.path(), sample_state(400), newest(3));

  EXPECT_TRUE(same_state(load_checkpoint(saved.path), sample_state(400)));
  EXPECT_TRUE(fs::exists(folder / "step-000000400.bad"));
}

TEST(InspectCheckpoints, ListsNewestFirstAndIgnoresOtherNames) {
  TemporaryFolder folder;
  for (const std::int64_t step : {100, 2'000'000'000, 300}) save_checkpoint(folder.path(), sample_state(step), newest(9));
  for (const char* name : {"step-1", "step-000000100.bad", ".tmp-step-000000500-77", "other", "step--00000001"}) {
    fs::create_directory(folder / name);
  }

  const std::vector<Candidate> found = inspect_checkpoints(folder.path());

  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].step, 2'000'000'000);
  EXPECT_EQ(found[1].step, 300);
  EXPECT_EQ(found[2].step, 100);
  for (const Candidate& candidate : found) EXPECT_EQ(candidate.problem, "");
}

TEST(InspectCheckpoints, IsEmptyWithoutAFolder) {
  TemporaryFolder folder;
  EXPECT_TRUE(inspect_checkpoints(folder / "none").empty());
}

TEST(InspectCheckpoints, NamesFileAndProblem) {
  TemporaryFolder folder;
  const auto problem_after = [&](const std::function<void(const fs::path&)>& damage) {
    fs::remove_all(folder / "c");
    const SaveResult saved = save_checkpoint(folder / "c", sample_state(7), newest(1));
    damage(saved.path);
    EXPECT_THROW(load_checkpoint(saved.path), UsageError);
    return inspect_checkpoints(folder / "c").at(0).problem;
  };
  const auto names = [](const std::string& problem, const std::string& file, const std::string& what) {
    return problem.find(file) != std::string::npos && problem.find(what) != std::string::npos;
  };

  EXPECT_PRED3(names, problem_after([](const fs::path& c) { fs::remove(c / "manifest.json"); }), "manifest.json", "missing");
  EXPECT_PRED3(names, problem_after([](const fs::path& c) { write_text(c / "manifest.json", ""); }), "manifest.json",
               "is not a checkpoint manifest (it is empty)");
  EXPECT_PRED3(names, problem_after([](const fs::path& c) { write_text(c / "manifest.json", "{\"version\": 1,"); }),
               "manifest.json", "is not a checkpoint manifest (it ends too early, after 14 bytes)");
  EXPECT_PRED3(names, problem_after([](const fs::path& c) { fs::remove(c / "model.safetensors"); }), "model.safetensors",
               "missing");
  EXPECT_PRED3(names, problem_after([](const fs::path& c) { fs::resize_file(c / "optimizer.safetensors", 5); }),
               "optimizer.safetensors", "has 5 bytes, but its manifest lists");
  EXPECT_PRED3(names, problem_after([](const fs::path& c) { flip_bit(c / "model.safetensors", 300); }), "model.safetensors",
               "checksum");
  EXPECT_PRED3(names, problem_after([](const fs::path& c) {
                 std::string text = read_text(c / "manifest.json");
                 text.replace(text.find("\"step\": 7"), 9, "\"step\": 8");
                 write_text(c / "manifest.json", text);
               }),
               "manifest.json", "for itself: it is damaged or was edited");
  EXPECT_PRED3(names, problem_after([](const fs::path& c) {
                 std::string text = read_text(c / "manifest.json");
                 text.replace(text.find("\"version\": 1"), 12, "\"version\": 3");
                 write_text(c / "manifest.json", text);
               }),
               "manifest.json", "has version 3; expected 1 or 2. A later version of ddprun wrote it: use that version");
  EXPECT_PRED3(names, problem_after([](const fs::path& c) {
                 fs::rename(c, c.parent_path() / "step-000000007.x");
                 fs::create_directory(c);
               }),
               "manifest.json", "missing");
}

TEST(InspectCheckpoints, RefusesAFolderOfAnotherName) {
  TemporaryFolder folder;
  const SaveResult saved = save_checkpoint(folder.path(), sample_state(7), newest(1));
  fs::rename(saved.path, folder / "step-000000008");

  EXPECT_NE(inspect_checkpoints(folder.path()).at(0).problem.find("contains step 7"), std::string::npos);
}

TEST(SetAside, RenamesAndPointsLatestToTheNewestOther) {
  TemporaryFolder folder;
  for (const std::int64_t step : {100, 200}) save_checkpoint(folder.path(), sample_state(step), newest(9));

  EXPECT_EQ(set_aside({200, folder / "step-000000200", "bad", {}}), folder / "step-000000200.bad");
  EXPECT_EQ(latest(folder.path()), "step-000000100");
  EXPECT_EQ(set_aside({100, folder / "step-000000100", "bad", {}}), folder / "step-000000100.bad");
  EXPECT_FALSE(fs::exists(fs::symlink_status(folder / "latest")));
}

TEST(Checkpoint, ASetAsideCheckpointCanBeLoadedByPath) {
  TemporaryFolder folder;
  const fs::path saved = save_checkpoint(folder.path(), sample_state(100), newest(9)).path;
  for (const char* ending : {".superseded", ".superseded-12", ".bad", ".bad-2"}) {
    fs::path aside = saved;
    aside += ending;
    fs::copy(saved, aside);
    EXPECT_TRUE(same_tensors(load_weights(aside).model, sample_state(100).model)) << ending;
    EXPECT_TRUE(same_state(load_checkpoint(aside), sample_state(100))) << ending;
  }
  for (const char* ending : {".superseded-", ".superseded-x", ".badly", ".old"}) {
    fs::path other = saved;
    other += ending;
    fs::copy(saved, other);
    EXPECT_THROW(load_weights(other), UsageError) << ending;
  }
  EXPECT_EQ(list_checkpoints(folder.path()).size(), 1U);
}

// At its start, a run renames bad checkpoints. A checkpoint that cannot be read only because no descriptor is free does not
// count as bad.
TEST(Checkpoint, IsNotBadForLackOfDescriptors) {
  TemporaryFolder folder;
  const fs::path saved = save_checkpoint(folder.path(), sample_state(100), newest(9)).path;
  const auto judge_without_descriptors = [&] {
    const rlimit none{};
    ::setrlimit(RLIMIT_NOFILE, &none);
    Candidate candidate{.step = 100, .path = saved, .problem = {}, .content = {}};
    try {
      judge_checkpoint(candidate);
    } catch (const Error& error) {
      ::_exit(static_cast<int>(error.code()));
    }
    ::_exit(0);
  };
  EXPECT_EXIT(judge_without_descriptors(), testing::ExitedWithCode(static_cast<int>(ExitCode::kInternal)), "");
}

TEST(SetAside, OverwritesNoEarlierOne) {
  TemporaryFolder folder;
  for (const char* expected : {"step-000000100.bad", "step-000000100.bad-2", "step-000000100.bad-3"}) {
    const SaveResult saved = save_checkpoint(folder.path(), sample_state(100), newest(9));
    EXPECT_EQ(set_aside({100, saved.path, "bad", {}}).filename(), expected);
  }
}

CheckpointState state_with_more(std::int64_t step) {
  CheckpointState state = sample_state(step);
  state.average = {{"fc1.weight", at::full({4, 3}, -7.0F)}};
  state.values = {{"plateau.best", std::numeric_limits<double>::infinity()}, {"plateau.lr", 0.1 + 0.2}};
  return state;
}

TEST(SecondFormat, StoresWhatTheFirstFormatCannot) {
  TemporaryFolder folder;
  const CheckpointState state = state_with_more(400);
  const SaveResult saved = save_checkpoint(folder.path(), state, newest(3));
  EXPECT_EQ(names_in(saved.path),
            (std::set<std::string>{"average.safetensors", "manifest.json", "model.safetensors", "optimizer.safetensors"}));
  EXPECT_TRUE(same_state(load_checkpoint(saved.path), state));
  const auto manifest = nlohmann::json::parse(read_text(saved.path / "manifest.json"));
  EXPECT_EQ(manifest["version"], 2);
  EXPECT_EQ(manifest["values"], (nlohmann::json{{"plateau.best", "inf"}, {"plateau.lr", "0.30000000000000004"}}));
  EXPECT_EQ(manifest["files"]["average.safetensors"]["role"], "average");
  std::int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(saved.path)) bytes += static_cast<std::int64_t>(entry.file_size());
  EXPECT_EQ(saved.bytes, bytes);

  CheckpointState other = state;
  other.values["plateau.lr"] = 0.3;
  save_checkpoint(folder / "other", other, newest(3));
  EXPECT_NE(inspect_checkpoints(folder.path()).front().content, inspect_checkpoints(folder / "other").front().content);
}

TEST(SecondFormat, LoadWeightsReturnsTheAverageIfThereIsOne) {
  TemporaryFolder folder;
  const SaveResult saved = save_checkpoint(folder.path(), state_with_more(400), newest(3));
  const CheckpointState weights = load_weights(saved.path);
  ASSERT_EQ(weights.model.size(), 3U);
  for (const NamedTensor& entry : weights.model) {
    const bool has_average = entry.name == "fc1.weight";
    const at::Tensor expected = has_average ? at::full({4, 3}, -7.0F) : entry.tensor;
    EXPECT_TRUE(at::equal(entry.tensor, expected)) << entry.name;
  }
}

// Writes a checkpoint of sample_state(400) whose tensor fc1.weight is split over two files. The first file contains the
// tensor's elements before `first_ends`, and the second file contains the elements from `second_begins` on.
fs::path divided(const fs::path& folder, std::int64_t first_ends, std::int64_t second_begins,
                 const std::function<void(Manifest&)>& change = {}) {
  const CheckpointState state = sample_state(400);
  const fs::path path = save_checkpoint(folder, state, newest(3)).path;
  Manifest manifest = decode_manifest(read_text(path / "manifest.json"));
  const at::Tensor whole = state.model[0].tensor.reshape(-1);
  const auto put = [&](const std::string& name, const std::vector<NamedTensor>& tensors, std::int64_t begin) {
    write_text(path / name, encode_safetensors(tensors, {}));
    manifest.files[name] = {
        .facts = facts_of_file(path / name), .role = kModelRole, .pieces = {{"fc1.weight", {{4, 3}, begin}}}};
  };
  put("model.safetensors", {{"fc1.weight", whole.narrow(0, 0, first_ends)}, state.model[1]}, 0);
  put("model-1.safetensors", {{"fc1.weight", whole.narrow(0, second_begins, 12 - second_begins)}, state.model[2]},
      second_begins);
  if (change) change(manifest);
  write_text(path / "manifest.json", encode_manifest(manifest));
  return path;
}

std::string problem_of(const fs::path& checkpoint) {
  try {
    load_checkpoint(checkpoint);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(SecondFormat, PiecesOfATensorAreReadFromAllFilesOfItsRole) {
  for (const std::int64_t at : {0, 1, 5, 12}) {
    TemporaryFolder folder;
    EXPECT_TRUE(same_state(load_checkpoint(divided(folder.path(), at, at)), sample_state(400))) << at;
    EXPECT_EQ(inspect_checkpoints(folder.path()).at(0).problem, "");
  }
}

TEST(SecondFormat, IncompletePiecesAreRefused) {
  const auto problem = [](std::int64_t first_ends, std::int64_t second_begins,
                          const std::function<void(Manifest&)>& change = {}) {
    TemporaryFolder folder;
    return problem_of(divided(folder.path(), first_ends, second_begins, change));
  };
  const auto ends = [](const std::string& text, const std::string& end) { return text.ends_with(end); };
  EXPECT_PRED2(ends, problem(5, 7), "step-000000400: no file contains element 5 of tensor fc1.weight");
  EXPECT_PRED2(ends, problem(5, 4),
               "has elements 0 to 4 of tensor fc1.weight, but another file also contains some of these elements");
  EXPECT_PRED2(ends, problem(5, 5, [](Manifest& m) { m.files["model-1.safetensors"].pieces["fc1.weight"].begin = 6; }),
               "has 7 elements of tensor fc1.weight, starting with element 6, but that tensor has only 12 elements");
  EXPECT_PRED2(ends, problem(5, 5, [](Manifest& m) { m.files["model-1.safetensors"].pieces["fc1.weight"].begin = INT64_MAX; }),
               "has 7 elements of tensor fc1.weight, starting with element 9223372036854775807, but that tensor has only 12 "
               "elements");
  EXPECT_PRED2(ends, problem(5, 5, [](Manifest& m) { m.files["model-1.safetensors"].pieces["fc2.weight"] = {}; }),
               "has no tensor fc2.weight, although the manifest lists a piece of that tensor in this file");
  EXPECT_PRED2(ends, problem(5, 5, [](Manifest& m) { m.files["model-1.safetensors"].pieces["fc1.weight"].shape = {12}; }),
               "but another file has Float [12]");
  for (const TensorPiece& impossible :
       {TensorPiece{{4, -3}, 0}, TensorPiece{{4, 3}, -1}, TensorPiece{{1LL << 40, 1LL << 40}, 0}, TensorPiece{{1 << 30}, 0}}) {
    const std::string text =
        problem(5, 5, [&](Manifest& m) { m.files["model-1.safetensors"].pieces["fc1.weight"] = impossible; });
    EXPECT_NE(text.find("lists a piece of tensor fc1.weight in the file model-1.safetensors with an impossible size"),
              std::string::npos)
        << text;
  }
}

TEST(Manifest, LimitsItsDepth) {
  try {
    decode_manifest(R"({"version": 2, "a": )" + std::string(20, '[') + std::string(20, ']') + "}");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("is nested deeper than 16 levels"), std::string::npos) << error.what();
  }
}

// A damaged tensor shape makes a checkpoint bad, and an older checkpoint is used instead. The damaged shape may describe
// terabytes, so the shape must be checked before memory is allocated.
TEST(SecondFormat, ATensorIsAllocatedAfterItsPiecesAreFound) {
  WholeTensors tensors;
  tensors.add({{"a", at::ones({1})}}, {{"a", {.shape = {1LL << 40}, .begin = 0}}});
  try {
    std::move(tensors).take();
    FAIL() << "expected a refusal";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "no file contains element 1 of tensor a");
  }
}

TEST(SecondFormat, UnknownEntriesAreRefusedByName) {
  TemporaryFolder folder;
  const std::string text = problem_of(divided(folder.path(), 5, 5, [](Manifest& m) {
    m.files["scaler.safetensors"] = m.files["optimizer.safetensors"];
    m.files["scaler.safetensors"].role = "scaler";
  }));
  EXPECT_NE(
      text.find("lists scaler.safetensors with the unknown role 'scaler': a later version of ddprun wrote this checkpoint"),
      std::string::npos)
      << text;
  EXPECT_NE(problem_of(divided(folder / "other", 5, 5, [](Manifest& m) { m.files["optimizer.safetensors"].role = "model"; }))
                .find("lists no file with the role 'optimizer'"),
            std::string::npos);
  EXPECT_NE(problem_of(divided(folder / "path", 5, 5, [](Manifest& m) { m.files["../x"] = m.files["optimizer.safetensors"]; }))
                .find("lists the file '../x'; expected a file name without a folder"),
            std::string::npos);
}

// Changes each byte of a checkpoint. Each change is either detected, or the loaded state is still the same.
TEST(Checkpoint, ChangedContentIsNeverAccepted) {
  TemporaryFolder folder;
  const CheckpointState state = state_with_more(400);
  const SaveResult saved = save_checkpoint(folder.path(), state, newest(3));
  const std::vector<std::string> files{"manifest.json", "model.safetensors", "optimizer.safetensors", "average.safetensors"};
  std::map<std::string, std::string> good;
  for (const std::string& file : files) good[file] = read_text(saved.path / file);

  int unnoticed = 0;
  for (std::uint32_t seed = 0; seed < 900; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const std::string& file = files[random() % files.size()];
    std::string bad = good[file];
    const std::size_t at = random() % bad.size();
    switch (random() % 5) {
      case 0:
      case 1:
        bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
        break;
      case 2:
        bad.resize(at);
        break;
      case 3:
        bad += static_cast<char>(random());
        break;
      default:
        std::fill(bad.begin() + static_cast<std::ptrdiff_t>(at), bad.end(), '\0');
        break;
    }
    write_text(saved.path / file, bad);

    if (inspect_checkpoints(folder.path()).at(0).problem.empty()) {
      ++unnoticed;
      EXPECT_TRUE(same_state(load_checkpoint(saved.path), state));
    } else {
      EXPECT_THROW(load_checkpoint(saved.path), UsageError);
    }
    write_text(saved.path / file, good[file]);
  }
  // Only two kinds of changes stay undetected: changes of whitespace in the manifest, and bytes that were set to their old
  // value.
  EXPECT_LT(unnoticed, 90);
}

}  // namespace
}  // namespace ddprun::trainer
