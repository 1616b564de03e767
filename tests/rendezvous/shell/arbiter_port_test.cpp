// Tests the two implementations of ArbiterPort: one with a real shared run directory, and one whose messages to etcd are
// checked. No query may take longer than its time limit. tests/whole_program/test_lone_survivor.py sends these messages to a
// real etcd server.
#include "rendezvous/shell/arbiter_port.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/shell/directory_arbiter.hpp"
#include "rendezvous/shell/etcd_arbiter.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun::rendezvous {
namespace {

ArbiterReply reply_of(boost::asio::io_context& io, ArbiterPort& port, const std::string& key, const std::string& self,
                      milliseconds limit = milliseconds(30000)) {
  std::optional<ArbiterReply> reply;
  port.query(key, self, limit, [&](ArbiterReply result) { reply = std::move(result); });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!reply && std::chrono::steady_clock::now() < end) {
    io.restart();
    io.run_one_for(std::chrono::milliseconds(100));
  }
  return reply.value_or(ArbiterReply{BallotAnswer::kNone, "test timeout"});
}

class LockedDirectory : public test::TemporaryFolder {
 public:
  explicit LockedDirectory(const std::string& holder) {
    std::ofstream(path() / "lock") << holder << "\n";
    fd_ = ::open((path() / "lock").c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_EQ(::flock(fd_, LOCK_EX | LOCK_NB), 0);
  }
  ~LockedDirectory() { ::close(fd_); }
  LockedDirectory(const LockedDirectory&) = delete;
  LockedDirectory& operator=(const LockedDirectory&) = delete;

 private:
  int fd_ = -1;
};

constexpr std::chrono::seconds kPatience{30};  // time limit; only a failing test reaches it

TEST(DirectoryArbiter, GivesEachRoundToTheFirstQuery) {
  LockedDirectory folder(R"({"host":"a","pid":1})");
  boost::asio::io_context io;
  DirectoryArbiter one(io, folder.path());
  DirectoryArbiter other(io, folder.path());
  const std::uint64_t holder = one.probe(kPatience);
  EXPECT_NE(holder, 0U);
  EXPECT_EQ(other.probe(kPatience), holder);
  const std::string key = key_of({.arbiter = Arbiter::kRunDirectory, .founder = {1}, .origin = {3, 7}});
  EXPECT_EQ(reply_of(io, one, key, "one").answer, BallotAnswer::kMine);
  EXPECT_EQ(reply_of(io, other, key, "other").answer, BallotAnswer::kOthers);
  // The node sends the same query again, as it does after a lost answer. It must get the same answer.
  EXPECT_EQ(reply_of(io, one, key, "one").answer, BallotAnswer::kMine);
  const std::string next = key_of({.arbiter = Arbiter::kRunDirectory, .founder = {1}, .origin = {3, 8}});
  EXPECT_EQ(reply_of(io, other, next, "other").answer, BallotAnswer::kMine);
}

TEST(DirectoryArbiter, StaysTheDirectoryOfTheProbedLock) {
  boost::asio::io_context io;
  test::TemporaryFolder unlocked;
  std::ofstream(unlocked.path() / "lock") << "{}\n";
  DirectoryArbiter unshared(io, unlocked.path());
  EXPECT_EQ(unshared.probe(kPatience), 0U);

  LockedDirectory first(R"({"host":"a","pid":1})");
  LockedDirectory second(R"({"host":"a","pid":2})");
  DirectoryArbiter arbiter(io, first.path());
  DirectoryArbiter elsewhere(io, second.path());
  EXPECT_NE(arbiter.probe(kPatience), elsewhere.probe(kPatience));

  // Renames the folder and creates another folder at the old path.
  const std::filesystem::path away = first.path().string() + "-away";
  std::filesystem::rename(first.path(), away);
  std::filesystem::create_directory(first.path());
  EXPECT_EQ(reply_of(io, arbiter, "ab/1.0", "one").answer, BallotAnswer::kMine);
  EXPECT_TRUE(std::filesystem::is_symlink(away / "arbiter" / "ab-1.0"));
  EXPECT_FALSE(std::filesystem::exists(first.path() / "arbiter"));
  std::filesystem::remove_all(away);
  // The original folder is removed, so the arbiter gives no answer.
  EXPECT_EQ(reply_of(io, arbiter, "ab/1.1", "one").answer, BallotAnswer::kNone);
}

TEST(EtcdArbiter, QueriesInOneTransaction) {
  const nlohmann::json json = nlohmann::json::parse(etcd_query("ddprun/a", "self"));
  EXPECT_EQ(json.dump(), R"({"compare":[{"create_revision":"0","key":"ZGRwcnVuL2E=","result":"EQUAL","target":"CREATE"}],)"
                         R"("failure":[{"request_range":{"key":"ZGRwcnVuL2E="}}],)"
                         R"("success":[{"request_put":{"key":"ZGRwcnVuL2E=","value":"c2VsZg=="}}]})");
}

TEST(EtcdArbiter, ParsesTheAnswer) {
  EXPECT_EQ(etcd_answer(R"({"header":{},"succeeded":true,"responses":[{"response_put":{}}]})", "self"), BallotAnswer::kMine);
  const std::string there =
      R"({"header":{},"responses":[{"response_range":{"kvs":[{"key":"YQ==","value":"c2VsZg=="}],"count":"1"}}]})";
  EXPECT_EQ(etcd_answer(there, "self"), BallotAnswer::kMine);
  EXPECT_EQ(etcd_answer(there, "other"), BallotAnswer::kOthers);
  for (const char* none :
       {"", "{}", "[]", "<html>", R"({"header":{}})", R"({"header":{},"responses":[{"response_range":{}}]})"}) {
    EXPECT_ANY_THROW(etcd_answer(none, "self")) << none;
  }
}

TEST(EtcdArbiter, ReportsTheReasonForNoAnswer) {
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor silent(io, {boost::asio::ip::make_address("127.0.0.1"), 0});
  const std::uint16_t port = silent.local_endpoint().port();
  EtcdArbiter arbiter(io, "127.0.0.1", port, "ddprun/");
  const ArbiterReply late = reply_of(io, arbiter, "a/1.0", "self", milliseconds(100));
  EXPECT_EQ(late.answer, BallotAnswer::kNone);
  EXPECT_EQ(late.why, "the arbiter at 127.0.0.1:" + std::to_string(port) + " made no decision: no response within 100 ms");
  silent.close();
  EXPECT_EQ(reply_of(io, arbiter, "a/1.0", "self").why,
            "the arbiter at 127.0.0.1:" + std::to_string(port) + " made no decision: Connection refused");
}

}  // namespace
}  // namespace ddprun::rendezvous
