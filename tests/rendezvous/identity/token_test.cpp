// Tests tokens: which tokens are refused and where tokens are found. A token file must be created only once, and must be
// readable only by its owner.
#include "rendezvous/identity/token_search.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "rendezvous/identity/token_file.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun::test {
namespace {

using std::chrono::milliseconds;

constexpr const char* kGood = "5f0c6c1e9a47b83d20d1e4f7a95b3c68";
constexpr const char* kAnother = "q3Jx0Zt7Lw9+Rk2/Vb8NdA==";

std::string complaint(const std::function<void()>& act) {
  try {
    act();
  } catch (const TokenError& error) {
    EXPECT_EQ(error.code(), ExitCode::kTokenRefused);
    return error.what();
  }
  return "";
}

void write_token(const std::filesystem::path& file, const std::string& text, mode_t mode = 0600) {
  write_text(file, text + "\n");
  ASSERT_EQ(::chmod(file.c_str(), mode), 0);
}

mode_t mode_of(const std::filesystem::path& file) {
  struct stat status {};
  EXPECT_EQ(::stat(file.c_str(), &status), 0);
  return status.st_mode & 07777U;
}

TEST(Token, NewTokensAreLongUniqueAndValid) {
  std::set<std::string> seen;
  for (int i = 0; i < 2000; ++i) {
    const Token token = new_token();
    EXPECT_EQ(token.text().size(), 64U);
    EXPECT_NO_THROW(check_token(std::string(token.text()), "new_token"));
    EXPECT_TRUE(seen.emplace(token.text()).second);
  }
}

TEST(Token, TokensOfOtherProgramsPass) {
  for (const char* text : {kGood, kAnother, "  5f0c6c1e9a47b83d20d1e4f7a95b3c68\r\n", "MFRGGZDFMZTWQ2LKNNWG23TPOBYXE43U2K7Q",
                           "gA7_x-Qp1Vn3zRt9Ls5Jm2", "x3Kq9!Zr7@Lm2#Wt5%Yb8&Nc", "k2f9x0q7zj4w8v1h6p3d5n2m"}) {
    EXPECT_NO_THROW(check_token(text, "x")) << text;
  }
}

class WeakTokens : public testing::TestWithParam<const char*> {};

TEST_P(WeakTokens, AreRefusedWithoutBeingShown) {
  const std::string message = complaint([] { check_token(GetParam(), "FILE"); });
  EXPECT_NE(message.find("the token in FILE"), std::string::npos) << message;
  EXPECT_NE(message.find("ddprun token --new"), std::string::npos) << message;
  if (*GetParam() != '\0') {
    EXPECT_EQ(message.find(GetParam()), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Token, WeakTokens,
                         testing::Values("", "secret", "changeme-changeme-changeme-changeme", "5f0c6c1e9a47b83d20d1e4f7a95b3c6",
                                         "00000000000000000000000000000000", "0123456789abcdef0123456789abcdef",
                                         "abcdefghijklmnopqrstuvwxyz0123456789", "correct-horse-battery-staple",
                                         "Summer2024!Winter2025!", "MyClusterToken2024#MyCluster",
                                         "Berlin-Hauptbahnhof-Gleis-13", "Correct-Horse-Battery-Staple",
                                         "two words of 5f0c6c1e9a47b83d20d1e4f7a95b3c68",
                                         "6f9619ff-8b86-4011-b42d-00c04fc964ff"));

TEST(Token, IsWipedWhenMovedFrom) {
  Token token(kGood);
  const Token moved = std::move(token);
  EXPECT_EQ(moved.text(), kGood);
  EXPECT_EQ(token.text(), "");  // NOLINT(bugprone-use-after-move): the class guarantees the state after a move
}

TEST(TokenFile, IsCreatedOnceWithPrivateMode) {
  const TemporaryFolder folder;
  const auto file = folder / "a/b/token";
  EXPECT_TRUE(make_token_file(file, new_token()));
  const std::string first(read_token_file(file).text());
  EXPECT_FALSE(make_token_file(file, new_token()));
  EXPECT_EQ(read_token_file(file).text(), first);
  EXPECT_EQ(mode_of(file), 0600U);
  EXPECT_EQ(mode_of(folder / "a/b"), 0700U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "a/b"), {}), 1);  // the temporary file was removed
}

TEST(TokenFile, ReadableByOthersIsRefusedWithTheFix) {
  const TemporaryFolder folder;
  for (const mode_t mode : {0640U, 0604U, 0660U, 0644U}) {
    write_token(folder / "token", kGood, mode);
    const std::string message = complaint([&] { read_token_file(folder / "token"); });
    EXPECT_NE(message.find("chmod 600 '" + (folder / "token").string() + "'"), std::string::npos) << message;
  }
  write_token(folder / "token", kGood, 0400);
  EXPECT_EQ(read_token_file(folder / "token").text(), kGood);
}

constexpr uid_t kRoot = 0, kUser = 1000, kOther = 1001;

struct Permissions {
  uid_t owner, user;
  mode_t mode;
  bool read_only_mount, is_accepted;
};

class TokenPermissions : public testing::TestWithParam<Permissions> {};

TEST_P(TokenPermissions, AreAcceptedOnlyIfNoOtherUserCanUseTheFile) {
  const Permissions& row = GetParam();
  const std::string problem = token_file_problem(
      {.is_regular = true, .owner = row.owner, .mode = row.mode, .read_only_mount = row.read_only_mount}, row.user, "FILE");
  EXPECT_EQ(problem.empty(), row.is_accepted) << problem;
}

INSTANTIATE_TEST_SUITE_P(
    TokenFile, TokenPermissions,
    testing::Values(Permissions{kUser, kUser, 0600, false, true}, Permissions{kUser, kUser, 0400, true, true},
                    Permissions{kRoot, kUser, 0400, true, true}, Permissions{kRoot, kRoot, 0400, false, true},
                    // accepted: a file that Kubernetes mounts from a Secret
                    Permissions{kRoot, kUser, 0440, true, true}, Permissions{kRoot, kRoot, 0440, true, true},
                    Permissions{kRoot, kUser, 0640, true, true},
                    // refused: processes can write to the mount
                    Permissions{kRoot, kUser, 0440, false, false}, Permissions{kRoot, kRoot, 0440, false, false},
                    // refused: the owner is not root
                    Permissions{kUser, kUser, 0440, true, false}, Permissions{kOther, kUser, 0440, true, false},
                    Permissions{kOther, kUser, 0400, true, false},
                    // refused: the group or other users have more rights than read access for the group
                    Permissions{kRoot, kUser, 0444, true, false}, Permissions{kRoot, kUser, 0404, true, false},
                    Permissions{kRoot, kUser, 0460, true, false}, Permissions{kRoot, kUser, 0420, true, false},
                    Permissions{kRoot, kUser, 0450, true, false}, Permissions{kRoot, kUser, 0441, true, false},
                    Permissions{kRoot, kUser, 0442, true, false}));

TEST(TokenFile, RefusedFileOfASecretIsExplainedWithTheFieldsToSet) {
  const auto problem_of = [](mode_t mode) {
    return token_file_problem({.is_regular = true, .owner = kRoot, .mode = mode, .read_only_mount = false}, kUser, "FILE");
  };
  for (const mode_t mode : {0440U, 0444U}) {
    EXPECT_NE(problem_of(mode).find("defaultMode: 0440"), std::string::npos) << problem_of(mode);
    EXPECT_NE(problem_of(mode).find("readOnly: true"), std::string::npos) << problem_of(mode);
    EXPECT_EQ(problem_of(mode).find("chmod"), std::string::npos) << problem_of(mode);  // only root could run it
  }
}

TEST(TokenFile, MissingOrInvalidFileIsReported) {
  const TemporaryFolder folder;
  EXPECT_NE(complaint([&] { read_token_file(folder / "none"); }).find("No such file"), std::string::npos);
  EXPECT_NE(complaint([&] { read_token_file(folder.path()); }).find("is not a regular file"), std::string::npos);
  write_token(folder / "large", std::string(1 << 20, 'x'));
  EXPECT_NE(complaint([&] { read_token_file(folder / "large"); }).find("longer than"), std::string::npos);
}

TEST(TokenFile, WaitReturnsWhenTheFileAppears) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "run");
  std::thread first_node([&] { make_token_file(folder / "run/token", Token(kGood)); });
  EXPECT_TRUE(wait_for_token_file(folder / "run/token", std::chrono::minutes(1)));
  first_node.join();
  EXPECT_EQ(read_token_file(folder / "run/token").text(), kGood);
  EXPECT_FALSE(wait_for_token_file(folder / "never", milliseconds(1)));
  EXPECT_FALSE(wait_for_token_file(folder / "no/folder/token", milliseconds(1)));
}

struct TokenFolders {
  TemporaryFolder folder;
  TokenSources sources() const {
    TokenSources sources;
    sources.user_file = folder / "config/ddprun/token";
    sources.patience = milliseconds(1);
    return sources;
  }
};

TEST(TokenSourcesTest, FirstSourceWins) {
  const TokenFolders folders;
  write_token(folders.folder / "given", "5f0c6c1e9a47b83d20d1e4f7a95b3c61");
  write_token(folders.folder / "run/token", "5f0c6c1e9a47b83d20d1e4f7a95b3c63");
  write_token(folders.folder / "config/ddprun/token", "5f0c6c1e9a47b83d20d1e4f7a95b3c64");
  TokenSources sources = folders.sources();
  EXPECT_EQ(find_token(sources).token.text().back(), '4');
  sources.run_dir = folders.folder / "run";
  EXPECT_EQ(find_token(sources).token.text().back(), '3');
  sources.variable = "5f0c6c1e9a47b83d20d1e4f7a95b3c62";
  EXPECT_EQ(find_token(sources).token.text().back(), '2');
  EXPECT_EQ(find_token(sources).source, "DDPRUN_TOKEN");
  sources.token_file = folders.folder / "given";
  EXPECT_EQ(find_token(sources).token.text().back(), '1');
  EXPECT_EQ(find_token(sources).source, (folders.folder / "given").string());
}

TEST(TokenSourcesTest, BadSourceIsNotSkipped) {
  const TokenFolders folders;
  TokenSources sources = folders.sources();
  sources.variable = "secret";
  EXPECT_NE(complaint([&] { find_token(sources); }).find("DDPRUN_TOKEN"), std::string::npos);
  sources.token_file = folders.folder / "missing";
  EXPECT_NE(complaint([&] { find_token(sources); }).find("missing"), std::string::npos);
}

TEST(TokenSourcesTest, UserTokenIsCreatedOnce) {
  const TokenFolders folders;
  const FoundToken first = find_token(folders.sources());
  const FoundToken second = find_token(folders.sources());
  EXPECT_TRUE(first.made);
  EXPECT_FALSE(second.made);
  EXPECT_EQ(first.token.text(), second.token.text());
}

TEST(TokenSourcesTest, FirstNodeCreatesTheRunTokenForOthers) {
  const TokenFolders folders;
  TokenSources sources = folders.sources();
  sources.run_dir = folders.folder / "run";
  sources.node = TokenSources::Node::kOther;
  sources.user_file.clear();
  const std::string message = complaint([&] { find_token(sources); });
  EXPECT_NE(message.find((folders.folder / "run/token").string()), std::string::npos) << message;
  EXPECT_NE(message.find("ddprun token"), std::string::npos) << message;

  TokenSources first = folders.sources();
  first.run_dir = sources.run_dir;
  const FoundToken made = find_token(first);
  EXPECT_TRUE(made.made);
  EXPECT_EQ(made.file, folders.folder / "run/token");
  EXPECT_EQ(find_token(sources).token.text(), made.token.text());
  // These two nodes share a home directory but not a run directory.
  sources.run_dir = folders.folder / "elsewhere";
  sources.user_file = first.user_file;
  EXPECT_EQ(find_token(sources).token.text(), made.token.text());
}

TEST(TokenVariable, IsRemovedFromTheProcess) {
  ASSERT_EQ(::setenv("DDPRUN_TOKEN", kGood, 1), 0);
  const char* const memory = std::getenv("DDPRUN_TOKEN");
  EXPECT_EQ(take_token_variable(), kGood);
  EXPECT_EQ(std::string(memory), "");
  EXPECT_EQ(std::getenv("DDPRUN_TOKEN"), nullptr);
  EXPECT_EQ(take_token_variable(), std::nullopt);
  ASSERT_EQ(::setenv("DDPRUN_TOKEN", "", 1), 0);
  EXPECT_EQ(take_token_variable(), std::nullopt);
}

}  // namespace
}  // namespace ddprun::test
