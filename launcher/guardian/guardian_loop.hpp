// The guardian's event loop. It starts, signals and reaps the workers as the agent requests. guardian.cpp runs it. The parts
// that have state are in separate files: the socket, the table of workers, the store, leftover processes, cgroups and memory
// counters.
#pragma once

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>

#include <csignal>
#include <cstdint>
#include <ctime>
#include <map>
#include <string>
#include <vector>

#include "common/system/realtime.hpp"
#include "launcher/guardian/agent_socket.hpp"
#include "launcher/guardian/guardian.hpp"
#include "launcher/guardian/guardian_protocol.hpp"
#include "launcher/guardian/memory_watch.hpp"
#include "launcher/guardian/spawn.hpp"
#include "launcher/guardian/worker_cgroups.hpp"
#include "launcher/guardian/worker_table.hpp"
#include "launcher/leftovers/leftover_sweeper.hpp"
#include "launcher/machine/cgroup_folders.hpp"
#include "launcher/machine/kernel_timer.hpp"
#include "launcher/tcp_store/store_starter.hpp"

namespace ddprun::guardian {

class Guardian final : private LeftoverSweeper::Guardian {
 public:
  explicit Guardian(const GuardianSettings& settings);
  void run();
  bool agent_shut_down_cleanly() const { return clean_shutdown_; }
  const DeathNotice& death_notice() const { return death_notice_; }
  int newest_report() const { return report_.get(); }
  WorkerCgroups& cgroups() { return cgroups_; }
  void end_store() { store_.end(); }

 private:
  using Worker = WorkerTable::Worker;

  void on_ready(const epoll_event& event);
  void watch(int fd, std::uint32_t events) const;
  void stop_watching(int fd) const;
  void receive_requests();
  void handle(const ReceivedRequest& received);
  void spawn(const ReceivedRequest& received);
  void activate(const Request& request);
  void signal(const Request& request);
  void keep_report(const ReceivedRequest& received);
  void place_later();
  void place_workers();
  void set_deadline(std::int64_t deadline_ns);
  void on_lease_expired();
  // The sweeper of leftover processes calls the following functions (LeftoverSweeper::Guardian).
  std::vector<pid_t> left() const override;
  std::vector<WorkerMark> workers() const override { return workers_.marks(); }
  void kill_cgroups() override { cgroups_.kill(); }
  // Kills all direct children. The caller repeats this until no child is left. The children of a killed child become children
  // of this process, so all descendants are reached.
  void kill_children() override {
    for (const pid_t pid : children_of_round()) ::kill(pid, SIGKILL);
  }
  void on_swept() override { agent_.notify({.kind = Notice::Kind::kSwept, .time_ns = realtime_ns()}); }
  void on_leftover_ended(const std::string& name) override;

  void check_leftovers();
  void settle(int number);
  void begin_next_round();
  void reap_worker(int worker);
  void worker_ended(int number, Notice notice);
  void reap_orphans();
  void read_spawn_errors();
  void flush();
  std::vector<pid_t> children_of_round() const;
  bool has_children() const;

  AgentSocket agent_;
  rlimit open_files_;
  int epoll_ = -1;
  int signals_ = -1;
  KernelTimer deadline_{CLOCK_BOOTTIME};  // fires when the worker lease expires; never set in a job on a single machine
  KernelTimer placing_{CLOCK_MONOTONIC};  // fires when the round's workers must be moved into cgroups
  const CgroupFolders folders_ = cgroups_of_this_process();
  WorkerCgroups cgroups_{folders_};
  MemoryWatch memory_{folders_};
  int error_pipe_[2] = {-1, -1};
  WorkerTable workers_;
  std::map<int, SpawnError> spawn_errors_;  // children that could not execute their program and are not reaped yet
  LeftoverSweeper sweeper_{*this};
  StoreStarter store_{agent_};
  bool writing_ = false;  // the socket is full, so the loop waits until it is writable
  bool clean_shutdown_ = false;
  DeathNotice death_notice_;
  Descriptor report_;  // memfd with the newest report from the agent, if any
};

}  // namespace ddprun::guardian
