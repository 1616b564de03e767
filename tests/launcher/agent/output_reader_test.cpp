// Tests how the agent reads the workers' pipes. After a worker was replaced, the new pipe must be read even if the console is
// slow. A job must not end before the log files are complete.
#include "launcher/agent/output_reader.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <string>
#include <thread>

#include <boost/asio/post.hpp>

#include "common/system/descriptor.hpp"
#include "launcher/agent/finish_files.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

struct Channel {
  Channel() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("pipe");
    reads = Descriptor(ends[0]);
    writes = Descriptor(ends[1]);
  }
  std::string read_now() const {
    std::string text;
    char buffer[65536];
    for (ssize_t count = 0; (count = ::read(reads.get(), buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<std::size_t>(count));
    return text;
  }
  Descriptor reads, writes;
};

class OutputReaderTest : public testing::Test, private OutputReader::Agent {
 protected:
  OutputReaderTest() {
    ::signal(SIGPIPE, SIG_IGN);
    console_.set_rules({});
    output_.begin_round({0});
    output_.begin_worker(0);
    reader_.begin_round(1);
  }

  // Creates a new pipe for the worker's stdout, and returns the write end.
  Descriptor adopt() {
    Channel pipe;
    reader_.adopt(0, Stream::kStdout, std::make_unique<boost::asio::posix::stream_descriptor>(io_, pipe.reads.release()));
    return std::move(pipe.writes);
  }
  void catch_up() {
    while (!out_.read_now().empty()) run();
  }
  std::size_t run() {
    io_.restart();
    return io_.poll();
  }
  void on_output(int /*rank*/) override {}
  void publish(const RunEvent& /*event*/) override {}
  void check_round_end() override {}
  void on_output_resumed() override {}

  boost::asio::io_context io_;
  FileQueue files_{[this](FileQueue::Work then) { boost::asio::post(io_, std::move(then)); }};
  Channel out_, err_;
  ConsoleWriter console_{io_, out_.writes.get(), err_.writes.get()};
  WorkerOutput output_{io_, files_, console_, {.workers = 1}};
  OutputReader reader_{io_, console_, output_, *this};
};

TEST_F(OutputReaderTest, AReplacedPipeIsWatchedOnce) {
  console_.lines(Stream::kStdout, std::string(ConsoleWriter::kQueueBytes, 'x') + "\n");
  ASSERT_TRUE(console_.is_behind(Stream::kStdout));
  const Descriptor before = adopt();
  const Descriptor now = adopt();
  catch_up();
  EXPECT_FALSE(reader_.is_throttling());
  ASSERT_EQ(::write(now.get(), "a line\n", 7), 7);
  EXPECT_EQ(run(), 1u) << "one callback reads it; a second one would find nothing, at every line from now on";
  EXPECT_EQ(out_.read_now(), "[rank 0] a line\n");
}

TEST(FinishFiles, ASlowConsoleFileIsAwaitedAndReported) {
  const test::TemporaryFolder folder;
  const std::string name = (std::filesystem::canonical(folder.path()) / "console").string();
  for (const Stream stalled : {Stream::kStdout, Stream::kStderr}) {
    std::filesystem::remove(name);
    const Descriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const Channel other;
    const bool is_stdout = stalled == Stream::kStdout;
    boost::asio::io_context io;
    ConsoleWriter console(io, is_stdout ? file.get() : other.writes.get(), is_stdout ? other.writes.get() : file.get());
    std::promise<void> disk_answers;
    ASSERT_EQ(console.files().size(), 1u);
    console.files()[0].queue->add([until = disk_answers.get_future().share()] { until.wait(); }, {},
                                  std::make_shared<std::filesystem::path>(name));
    console.line(stalled, "the last line");
    std::string printed;
    std::thread disk([&] {
      pollfd ready{other.reads.get(), POLLIN, 0};
      if (::poll(&ready, 1, 20'000) == 1) printed = other.read_now();
      disk_answers.set_value();
    });
    finish_files(console, {nullptr}, std::chrono::milliseconds(20));
    disk.join();
    EXPECT_NE(printed.find("the job has ended, but writing to " + name + " is blocked"), std::string::npos) << printed;
    std::ifstream in(name);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "the last line\n");
  }
}

}  // namespace
}  // namespace ddprun
