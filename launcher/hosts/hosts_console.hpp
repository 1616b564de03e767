// The console of a job on several hosts: forwards the output of the agents to stdout and stderr of this process, in whole
// lines with the host's name as a prefix. hosts_loop.cpp uses it. It never blocks, so this process sends pings to the hosts
// even if no program reads the console.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/hosts/write_queue.hpp"
#include "launcher/output/line_splitter.hpp"

namespace ddprun {

class HostsConsole {
 public:
  enum class Stream { kOutput, kErrors };
  // If the job has one host, lines get no prefix. With `json`, lines of stdout get no prefix, because each of them is a JSON
  // object.
  HostsConsole(const std::vector<std::string>& names, bool json);

  void add(std::size_t host, Stream stream, std::string_view bytes);
  // Call this when the output of the host has ended. It also shows an unfinished last line.
  void end(std::size_t host);
  // Shows a message of this process.
  void print(const std::string& text);

  bool is_full() const { return output_.queue.bytes() + errors_.queue.bytes() > kMaxWaiting; }
  // These functions return the descriptors that the event loop must poll until they are writable; -1 if no text waits.
  int output_fd() const;
  int errors_fd() const;
  void write(Stream stream);  // call it when the descriptor is writable
  void write_all_now();       // call it at the end of the job; the call blocks

 private:
  static constexpr std::size_t kMaxWaiting = 1 << 20;
  struct Target {
    int fd;
    WriteQueue queue{};
    bool closed = false;
  };
  struct Lines {
    std::string prefix;
    LineSplitter splitter{};
  };
  void add_lines(Target& target, const Lines& lines, std::string_view text);
  Target output_, errors_;
  std::vector<Lines> output_lines_, error_lines_;  // one for each host
};

}  // namespace ddprun
