// Reserves memory for a memfd, or reports why this machine does not have that memory.
//
// The problem. Pages of a memfd are allocated at their first use. If there is no memory left at that time, the kernel ends the
// process, and users see only a signal. fallocate() allocates all pages in advance. But at a memory limit of a cgroup or of
// the machine, fallocate() does not return an error: the kernel kills a process. At the file size limit, the kernel sends
// SIGXFSZ.
//
// The idea. Compare the size with all limits first. Another process may take the memory between this comparison and
// fallocate(). This is as likely as for any other allocation of this size.
//
// Several processes can allocate parts of one memfd. The kernel clears the pages of each part, which takes most of the time. So
// processes that allocate their own parts at the same time need less time than one process. In addition, the pages are then
// near the processor of that process, and count for its cgroup.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun::trainer::collectives {

struct MemoryLimit {
  std::string name;             // for a message: "the memory limit of the cgroup /job"
  std::uint64_t available = 0;  // bytes
};

// Returns the lowest of the limits on the memory of this process: free memory of the machine, cgroups of version 1 and 2, file
// size. Returns nullopt if no limit is known.
std::optional<MemoryLimit> tightest_memory_limit();

// Compares the size with the limits of this process, and sets the size of the memfd. No page is allocated. Returns an error
// message, or nullopt.
std::optional<std::string> size_memory(int memfd, std::uint64_t bytes);

// Compares a part of a sized memfd with the limits of this process, and allocates its pages. Returns an error message, or
// nullopt. May be called more than once for the same part.
std::optional<std::string> allocate_memory(int memfd, std::uint64_t begin, std::uint64_t bytes);

// These functions are pure. They return the value in bytes of "MemAvailable:  123 kB" and of "inactive_file 123", or nullopt if
// the text has no such line.
std::optional<std::uint64_t> kib_after(std::string_view text, std::string_view key);
std::optional<std::uint64_t> bytes_after(std::string_view text, std::string_view key);
// Returns the path of a cgroup of this process. For cgroup version 2, `controller` is empty: the result for the line "0::/job"
// is "/job". For version 1, `controller` is the name of a controller: the result for "4:cpu,memory:/job" and "memory" is
// "/job".
std::optional<std::string> cgroup_path(std::string_view proc_self_cgroup, std::string_view controller);

}  // namespace ddprun::trainer::collectives
