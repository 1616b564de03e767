// How a worker is asked to stop, and how the ranks agree where (decision 5; the gate itself is stop_gate.hpp). Under ddprun
// the agent asks and decides, over the worker channel; a bare signal is a question to the agent. Without an agent of ours
// (torchrun, srun, a shell) each rank gets the signal itself, and they agree through the store.
#pragma once

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "common/channel/message.hpp"
#include "trainer/surroundings/stop_gate.hpp"

namespace ddprun::trainer {

class AgentChannel;

class Stopping {
 public:
  virtual ~Stopping() = default;
  virtual void on_signal(int signal) = 0;
  // On the training thread: this is the group now. `store` may be null in a world of one. `restart` (the restart count) keeps
  // the keys of rounds apart.
  virtual void on_group(c10::intrusive_ptr<c10d::Store> store, int rank, int world, int restart) = 0;
};

// By the agent. Messages may come before attach(): answers wait for it.
class StoppingByAgent : public Stopping {
 public:
  explicit StoppingByAgent(StopGate& gate) : gate_(gate) {}
  void attach(AgentChannel& channel);
  void on_message(const channel::FromAgent& message);
  // Asks the agent. SIGINT is left to it altogether: a Ctrl-C reaches it as well.
  void on_signal(int signal) override;
  // The agent made it.
  void on_group(c10::intrusive_ptr<c10d::Store>, int, int, int) override {}

 private:
  void on_stop(const channel::Stop& stop);

  StopGate& gate_;
  std::mutex mutex_;
  AgentChannel* channel_ = nullptr;
  std::unique_ptr<channel::StopReady> answer_;  // waits for the channel
  bool asked_ = false;
};

// By the ranks among themselves. Before their group there is nothing to save, so a signal ends the process.
class StoppingByStore : public Stopping {
 public:
  explicit StoppingByStore(StopGate& gate) : gate_(gate) {}
  ~StoppingByStore() override;
  // The first one saves and stops; a second SIGINT ends the process at once.
  void on_signal(int signal) override;
  void on_group(c10::intrusive_ptr<c10d::Store> store, int rank, int world, int restart) override;

 private:
  void agree(std::int64_t started, int signal);
  std::string target_key(int rank) const;

  StopGate& gate_;
  std::mutex mutex_;
  bool has_group_ = false;
  bool asked_ = false;
  c10::intrusive_ptr<c10d::Store> store_;
  int rank_ = 0;
  int world_ = 1;
  std::string prefix_;
  std::atomic<bool> over_ = false;
  std::thread agreement_;
};

}  // namespace ddprun::trainer
