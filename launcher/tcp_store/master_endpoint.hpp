// Chooses MASTER_ADDR and MASTER_PORT for each round (one start of all workers), and opens the sockets of the store for
// scripts. In a multi-node job, the coordinator's message that starts a round contains both values. Only the node with group
// rank 0 reserves the port (HeldPort).
//
// The problem. Scripts connect to a TCPStore at MASTER_PORT. Normally ddprun's store process serves them. Rank 0 hosts the
// store only if ddprun's store cannot listen on the port. Between two rounds the old store ends and a new one must listen,
// often on the same port.
//
// How it goes wrong. There are two errors to avoid:
// - Between two rounds another program takes the port. If the user chose the port, no other port is acceptable.
// - The old store still listens on the port. The kernel distributes connections among all sockets that listen on one port with
//   SO_REUSEPORT. So some new workers would connect to the old store and wait there without a limit.
//
// The idea. A port that the user chose stays reserved until a round uses another one. While ddprun's store listens on it, the
// kernel refuses the port to other servers (ports.hpp). Before each round the old store is ended. If the guardian does not
// confirm this in time, the new store uses a different port. If no other port is acceptable, rank 0 tries to listen on the
// port, and fails with a visible error.
//
// If ddprun's store cannot listen in a later round, rank 0 also tries. If rank 0 fails, this is a worker's failure, after
// which the restart policy can start another round. A UsageError would end the job although restarts are left.
//
// In a multi-node job with static rendezvous the agent itself listens on the port, since nodes can join there at any time. It
// passes clients of the store to the store's process (launcher/network/store_clients.hpp). So the port stays in use between
// rounds.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "launcher/guardian/guardian_link.hpp"
#include "launcher/machine/ports.hpp"
#include "launcher/network/job_link.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/tcp_store/store_sockets.hpp"
#include "launcher/workers/worker_environment.hpp"

namespace ddprun {

// Returns the line that the console prints for a message of the store's process.
inline std::string store_message_line(const guardian::Notice& notice) {
  return "ddprun: the workers' store " + printable(notice.text.data());
}

class MasterEndpoint {
 public:
  // Ends the previous round's store. Chooses and reserves address and port for a new round, and opens the sockets of the new
  // store. `job` is null on one machine. Throws UsageError or InternalError, as HeldPort does.
  void take(const Plan& plan, JobLink* job, GuardianLink& guardian) {
    end_store(guardian);
    const bool first = !std::exchange(was_taken_, true);
    if (job != nullptr) {
      const rendezvous::Address master = job->master();
      address_ = master.host;
      port_ = master.port;
      hold_port_of(*job, first);
    } else {
      const bool may_move = plan.master_port == 0 || plan.master_port_need != PortNeed::kExactly;
      const bool old_store_on_port = held_ && held_->port() == ending_port_;
      if (!held_ || plan.master_port == 0 || held_->port() != plan.master_port || (old_store_on_port && may_move)) {
        std::optional<HeldPort> other;
        if (old_store_on_port) other = HeldPort::any(plan.rendezvous.port_range);
        held_.reset();
        if (!other) other = HeldPort::of(plan.master_port, plan.master_port_need, plan.rendezvous.port_range);
        held_ = std::move(other);
      }
      address_ = plan.master_addr;
      port_ = held_->port();
    }
    open_store(plan, job, first);
  }
  // Sends the sockets to the guardian, which starts the store's process at the first connection. Call this after the workers of
  // a new round have started, so that it does not delay them. In a regroup it may be called earlier, since the surviving
  // workers already run.
  void serve_store(GuardianLink& guardian) {
    const ListeningSockets sockets = std::exchange(store_, {});
    if (sockets.empty()) return;
    guardian.serve_store(sockets, single_machine_);
    guardian_has_store_ = true;
  }
  // Closes the sockets that were not sent to the guardian, and orders the guardian to end the store. If the guardian does not
  // confirm the end, the port counts as still in use.
  void end_store(GuardianLink& guardian) {
    store_.clear();
    if (std::exchange(guardian_has_store_, false)) ending_port_ = port_;
    if (ending_port_ != 0 && guardian.end_store()) ending_port_ = 0;
  }
  // Releases the reserved port and its descriptor.
  void release() { held_.reset(); }
  // Sets MASTER_ADDR and MASTER_PORT in the settings of a worker.
  void fill(WorkerSettings& settings) const {
    settings.master_addr = address_;
    settings.master_port = port_;
    settings.agent_store = !rank_0_hosts_;
  }

 private:
  // In a multi-node job, reserves the port if rank 0 runs on this node. After the first round a failure to reserve it is not an
  // error, since rank 0 may then host the store.
  void hold_port_of(JobLink& job, bool first) {
    if (job.release().group_rank == 0 && held_ && held_->port() == port_) return;
    held_.reset();
    try {
      held_ = job.hold_master_port();
    } catch (const UsageError&) {
      if (first) throw;
    }
  }

  // Opens the sockets of the store, unless another node or rank 0 hosts it.
  void open_store(const Plan& plan, JobLink* job, bool first) {
    const bool rank_0_is_local = job == nullptr || job->release().group_rank == 0;
    // If the agent itself listens on the port, it passes new clients only to the new store: JobLink::open_store() replaces the
    // old store's socket.
    const bool old_store_reachable = port_ == ending_port_ && (job == nullptr || !job->listens_for_store());
    rank_0_hosts_ = !plan.agent_store || (rank_0_is_local && (!held_ || old_store_reachable));
    if (held_) held_->admit(rank_0_hosts_ ? PortListener::kRank0 : PortListener::kAgentsStore);
    if (rank_0_hosts_ || !held_) {
      if (job != nullptr) job->refuse_store_clients();
      return;
    }
    single_machine_ = job == nullptr;
    const StorePlace place{.master_addr = address_,
                           .port = port_,
                           .many_machines = job != nullptr,
                           .own_address = job != nullptr ? job->own_address() : ""};
    try {
      store_ = job != nullptr && job->listens_for_store() ? job->open_store(place) : open_store_sockets(place);
    } catch (const UsageError&) {
      if (job == nullptr && first) throw;
      rank_0_hosts_ = true;
      held_->admit(PortListener::kRank0);
    }
  }

  std::optional<HeldPort> held_;
  std::string address_;
  int port_ = 0;
  bool was_taken_ = false;
  bool rank_0_hosts_ = true;  // true: rank 0 hosts the store of scripts; false: ddprun's store process hosts it
  ListeningSockets store_;    // sockets that open_store() has opened and serve_store() has not yet sent to the guardian
  bool single_machine_ = true;
  bool guardian_has_store_ = false;
  // The port of a previous store that may still listen, since the guardian has not confirmed its end; 0: none.
  int ending_port_ = 0;
};

}  // namespace ddprun
