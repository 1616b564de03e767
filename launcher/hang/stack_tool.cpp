// Implementation of stack_tool.hpp.
#include "launcher/hang/stack_tool.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/system/start_program.hpp"
#include "launcher/workers/stuck_workers.hpp"

namespace ddprun {
namespace {

using boost::asio::steady_timer;
using boost::asio::posix::stream_descriptor;

constexpr std::size_t kMostFrames = 40;
constexpr std::size_t kWidestFrame = 200;
constexpr std::size_t kMostOutput = 1 << 20;

std::string program_on_path(const char* program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (folder.empty()) continue;
    std::string file = folder + "/" + program;
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

bool is_frame(const std::string& line) {
  return line.starts_with("#") || line.starts_with("Thread") || line.starts_with("TID") || line.starts_with("    ");
}

}  // namespace

StackTool find_stack_tool(bool python) {
  for (const char* name : {"py-spy", "eu-stack", "gdb"}) {
    if (!python && std::strcmp(name, "py-spy") == 0) continue;
    if (std::string path = program_on_path(name); !path.empty()) return {name, std::move(path)};
  }
  return {};
}

std::vector<std::string> stack_command(const StackTool& tool, long pid) {
  const std::string process = std::to_string(pid);
  if (tool.name == "py-spy") return {tool.path, "dump", "--pid", process};
  if (tool.name == "eu-stack") return {tool.path, "-1", "-p", process};
  // gdb must read no start-up file, and no symbols from a server.
  return {tool.path, "-nx", "-batch", "-p", process, "-iex", "set debuginfod enabled off", "-ex", "bt 40"};
}

std::vector<std::string> frames_in(const std::string& output) {
  std::vector<std::string> frames;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line) && frames.size() < kMostFrames;) {
    if (!is_frame(line)) continue;
    frames.push_back(line.size() > kWidestFrame ? line.substr(0, kWidestFrame) + "..." : line);
  }
  return frames;
}

struct StackRun::Impl : std::enable_shared_from_this<StackRun::Impl> {
  Impl(boost::asio::io_context& io, std::function<void(std::vector<std::string>)> on_done)
      : pipe(io), timer(io), end(io), done(std::move(on_done)) {}

  void begin(const StackTool& tool, long process, std::chrono::milliseconds at_most) {
    name = tool.name;
    subject = process;
    subject_was_stopped = process_state(process) == 'T';
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return finish_later("cannot be started");
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    pipe.assign(ends[0]);
    if (start_program(stack_command(tool, process), ends[1], ends[1], pid) != 0) pid = -1;
    ::close(ends[1]);
    if (pid < 0) return finish_later("cannot be started");
    timer.expires_after(at_most);
    timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error) self->finish("has not answered in time");
    });
    read();
  }

  void read() {
    pipe.async_read_some(boost::asio::buffer(chunk),
                         [self = shared_from_this()](const boost::system::error_code& error, std::size_t n) {
                           if (!self->done) return;
                           if (self->output.size() < kMostOutput) self->output.append(self->chunk.data(), n);
                           if (!error) return self->read();
                           self->finish({});
                         });
  }

  void finish_later(const char* trouble) {
    boost::asio::post(pipe.get_executor(), [self = shared_from_this(), trouble] { self->finish(trouble); });
  }

  void finish(const std::string& trouble) {
    if (!done) return;
    end_tool();
    auto frames = frames_in(output);
    if (frames.empty()) {
      std::string last;
      std::istringstream lines(output);
      for (std::string line; std::getline(lines, line);)
        if (!line.empty()) last = line;
      frames.push_back("no stack: " + name + " " + (trouble.empty() ? "says: " + last.substr(0, kWidestFrame) : trouble));
    }
    std::exchange(done, nullptr)(std::move(frames));
  }

  // A tool that has closed its output is ending; SIGKILL makes sure. But a process that reads another one's memory may be deep
  // in the kernel. So the event loop, which may have a lease to keep, reaps it later, and nobody waits for it.
  void end_tool() {
    timer.cancel();
    boost::system::error_code ignored;
    pipe.close(ignored);
    if (pid <= 0 || ended) return;
    ended = true;
    ::kill(-pid, SIGKILL);
    if (reap()) return;
    const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    if (pidfd < 0) return;  // no descriptors are left: init reaps the tool in the end
    end.assign(pidfd);
    await_end();
  }

  void await_end() {
    end.async_wait(stream_descriptor::wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
      if (!error && !self->reap()) self->await_end();  // not yet: a debugger that traces the tool must wait for it first
    });
  }

  // Reaps the tool if it has ended, and does what its end requires.
  bool reap() {
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) == 0) return false;
    // A debugger attaches with SIGSTOP. If it is killed before it has noticed the stop, it leaves its process stopped for good.
    if (WIFSIGNALED(status) && !subject_was_stopped) ::kill(static_cast<pid_t>(subject), SIGCONT);
    boost::system::error_code ignored;
    end.close(ignored);
    return true;
  }

  stream_descriptor pipe;
  steady_timer timer;
  stream_descriptor end;  // the tool's pidfd, while we wait for its end
  std::function<void(std::vector<std::string>)> done;
  std::array<char, 16384> chunk{};
  std::string name;
  std::string output;
  pid_t pid = -1;
  long subject = 0;
  bool subject_was_stopped = false;
  bool ended = false;  // the tool was told to end
};

StackRun::StackRun(boost::asio::io_context& io, const StackTool& tool, long pid, std::chrono::milliseconds at_most,
                   std::function<void(std::vector<std::string>)> done)
    : impl_(std::make_shared<Impl>(io, std::move(done))) {
  impl_->begin(tool, pid, at_most);
}

StackRun::~StackRun() {
  impl_->done = nullptr;
  impl_->end_tool();
}

}  // namespace ddprun
