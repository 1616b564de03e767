// How a worker receives a stop request, and how the ranks agree on the step (decision 5; the gate is stop_gate.hpp). Under
// ddprun the agent requests and decides, over the worker channel. A signal alone is reported to the agent, which decides.
// Without an agent of ours (torchrun, srun, a shell) each rank gets the signal itself, and the ranks agree through the store.
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
  // Called on the training thread for each new group. `store` may be null in a world of one. `restart` (the restart count)
  // keeps the keys of rounds apart.
  virtual void on_group(c10::intrusive_ptr<c10d::Store> store, int rank, int world, int restart) = 0;
};

// Stops by order of the agent. Messages may arrive before attach(); answers are sent after it.
class StoppingByAgent : public Stopping {
 public:
  explicit StoppingByAgent(StopGate& gate) : gate_(gate) {}
  void attach(AgentChannel& channel);
  void on_message(const channel::FromAgent& message);
  // Reports the signal to the agent. Does nothing for SIGINT: the terminal sends a Ctrl-C to the agent too.
  void on_signal(int signal) override;
  // Not needed: the agent forms the groups.
  void on_group(c10::intrusive_ptr<c10d::Store>, int, int, int) override {}

 private:
  void on_stop(const channel::Stop& stop);

  StopGate& gate_;
  std::mutex mutex_;
  AgentChannel* channel_ = nullptr;
  std::unique_ptr<channel::StopReady> answer_;  // sent when the channel is attached
  bool asked_ = false;
};

// Stops by agreement of the ranks. Before they form a group there is nothing to save, so a signal ends the process.
class StoppingByStore : public Stopping {
 public:
  explicit StoppingByStore(StopGate& gate) : gate_(gate) {}
  ~StoppingByStore() override;
  // The first signal saves and stops; a second SIGINT ends the process immediately.
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
