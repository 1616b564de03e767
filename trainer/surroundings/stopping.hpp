// Receives a stop request in a worker, and chooses the step after which all ranks stop (stop_gate.hpp,
// docs/internals/decisions/launcher/two-meanings-of-sigterm.md). There are two cases:
//   - With a ddprun agent, the agent sends the request and the stop step over the worker channel. If only this worker receives
//     a signal, the worker reports it to the agent, which decides.
//   - Without an agent (torchrun, srun, a shell), each rank receives the signal itself, and the ranks agree through the c10d
//     store.
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
  // The signal thread calls this for each stop signal.
  virtual void on_signal(int signal) = 0;
  // The training thread calls this when a process group has been formed. `store` may be null if `world` is 1. `restart` is the
  // restart count. It is part of the keys in the store, so that a restarted job does not read keys from before the restart.
  virtual void on_group(c10::intrusive_ptr<c10d::Store> store, int rank, int world, int restart) = 0;
};

// Stops training when the agent requests a stop. If the stop request arrives before attach(), then attach() sends the answer.
class StoppingByAgent : public Stopping {
 public:
  explicit StoppingByAgent(StopGate& gate) : gate_(gate) {}
  void attach(AgentChannel& channel);
  void on_message(const channel::FromAgent& message);
  // Reports the signal to the agent. Ignores SIGINT, because the terminal sends a Ctrl-C to the agent too.
  void on_signal(int signal) override;
  // Does nothing: no store is needed, because the agent computes the stop step.
  void on_group(c10::intrusive_ptr<c10d::Store>, int, int, int) override {}

 private:
  void on_stop(const channel::Stop& stop);

  StopGate& gate_;
  std::mutex mutex_;
  AgentChannel* channel_ = nullptr;
  std::unique_ptr<channel::StopReady> answer_;  // answer to a stop request that arrived before attach(); null otherwise
  bool requested_ = false;
};

// Stops training when a signal arrives. The ranks agree on the stop step through the store. A signal before the first process
// group is formed ends the process immediately, because nothing has been trained yet.
class StoppingByStore : public Stopping {
 public:
  explicit StoppingByStore(StopGate& gate) : gate_(gate) {}
  ~StoppingByStore() override;
  // The first signal requests a stop with a checkpoint. A second SIGINT ends the process immediately.
  void on_signal(int signal) override;
  void on_group(c10::intrusive_ptr<c10d::Store> store, int rank, int world, int restart) override;

 private:
  void agree(std::int64_t started, int signal);
  std::string target_key(int rank) const;

  StopGate& gate_;
  std::mutex mutex_;
  bool has_group_ = false;
  bool requested_ = false;
  c10::intrusive_ptr<c10d::Store> store_;
  int rank_ = 0;
  int world_ = 1;
  std::string prefix_;
  std::atomic<bool> over_ = false;
  std::thread agreement_;
};

}  // namespace ddprun::trainer
