// MASTER_ADDR and MASTER_PORT of a round, and the sockets at which scripts find their store. In a job on many machines the
// release has both, and only the node with group rank 0 reserves the port (HeldPort).
//
// A port that the user named must stay reserved between two rounds, since no other port will do. So it is released only when
// the next round uses another one. While the agent's store has the port, the kernel refuses it to every other user. If the
// store still cannot listen in a later round, rank 0 tries to. If that fails, it is the failure of a worker, which the restart
// policy retries. An error here would end the job with "wrong command line", even if restarts are left.
//
// The store of the previous round must be closed first. The kernel spreads connections over all sockets that listen at one port
// with SO_REUSEPORT. So new workers would connect to the old store and wait there. If a slow guardian does not confirm the end
// in time, the store takes another port. If no other port will do, rank 0 tries to listen, and fails with a visible error.
//
// In a static job on many machines the agent itself listens at the named port, since nodes join there at any time. It passes
// store clients to the store's process (launcher/network/store_clients.hpp). So no port is bound between two rounds.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "launcher/guardian/guardian_link.hpp"
#include "launcher/machine/ports.hpp"
#include "launcher/machine/store_sockets.hpp"
#include "launcher/network/job_link.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/workers/worker_environment.hpp"

namespace ddprun {

// The console line for a message of the store's process.
inline std::string line_of_store(const guardian::Notice& notice) {
  return "ddprun: the workers' store " + printable(notice.text.data());
}

class MasterEndpoint {
 public:
  // Reserves address and port for a new round. `job` is null on one machine. Throws UsageError or InternalError, as HeldPort
  // does. Opens the store of scripts there and replaces the store of the previous round.
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
      const bool old_one_is_there = held_ && held_->port() == ending_at_;
      if (!held_ || plan.master_port == 0 || held_->port() != plan.master_port || (old_one_is_there && may_move)) {
        std::optional<HeldPort> other;
        if (old_one_is_there) other = HeldPort::any(plan.rendezvous.port_range);
        held_.reset();
        if (!other) other = HeldPort::of(plan.master_port, plan.master_port_need, plan.rendezvous.port_range);
        held_ = std::move(other);
      }
      address_ = plan.master_addr;
      port_ = held_->port();
    }
    open_store(plan, job, first);
  }
  // Passes the store to the guardian. Call it when the workers of a new round have been started, since it must not delay them.
  // In a regroup it may be called earlier.
  void serve_store(GuardianLink& guardian) {
    const ListeningSockets sockets = std::exchange(store_, {});
    if (sockets.all().empty()) return;
    guardian.serve_store(sockets.all(), store_is_for_one_machine_);
    guardian_has_store_ = true;
  }
  void end_store(GuardianLink& guardian) {
    store_ = {};
    if (std::exchange(guardian_has_store_, false)) ending_at_ = port_;
    if (ending_at_ != 0 && guardian.end_store()) ending_at_ = 0;
  }
  void let_go() { held_.reset(); }
  // Fills in the settings that workers get.
  void tell(WorkerSettings& settings) const {
    settings.master_addr = address_;
    settings.master_port = port_;
    settings.agent_store = !rank_0_hosts_;
  }

 private:
  void hold_port_of(JobLink& job, bool first) {
    if (job.release().group_rank == 0 && held_ && held_->port() == port_) return;
    held_.reset();
    try {
      held_ = job.hold_master_port();
    } catch (const UsageError&) {
      if (first) throw;
    }
  }

  // Opens the store, unless another node has it or rank 0 hosts it.
  void open_store(const Plan& plan, JobLink* job, bool first) {
    const bool rank_0_is_here = job == nullptr || job->release().group_rank == 0;
    // Where the agent listens, no new client reaches the old store: open_store() replaces its socket.
    const bool old_store_is_met = port_ == ending_at_ && (job == nullptr || !job->listens_for_store());
    rank_0_hosts_ = !plan.agent_store || (rank_0_is_here && (!held_ || old_store_is_met));
    if (held_) held_->let_in(rank_0_hosts_ ? PortListener::kRank0 : PortListener::kAgentsStore);
    if (rank_0_hosts_ || !held_) {
      if (job != nullptr) job->refuse_store_clients();
      return;
    }
    store_is_for_one_machine_ = job == nullptr;
    const StorePlace place{.master_addr = address_,
                           .port = port_,
                           .many_machines = job != nullptr,
                           .own_address = job != nullptr ? job->own_address() : ""};
    try {
      store_ = job != nullptr && job->listens_for_store() ? job->open_store(place) : open_store_sockets(place);
    } catch (const UsageError&) {
      if (job == nullptr && first) throw;
      rank_0_hosts_ = true;
      held_->let_in(PortListener::kRank0);
    }
  }

  std::optional<HeldPort> held_;
  std::string address_;
  int port_ = 0;
  bool was_taken_ = false;
  bool rank_0_hosts_ = true;  // rank 0 hosts the store of scripts
  ListeningSockets store_;    // between open_store() and serve_store()
  bool store_is_for_one_machine_ = true;
  bool guardian_has_store_ = false;
  int ending_at_ = 0;  // port of a store whose end the guardian has not confirmed; 0: none
};

}  // namespace ddprun
