// MASTER_ADDR and MASTER_PORT of a round, and the sockets at which scripts find their store. On one machine the port is
// reserved until the next round (HeldPort). In a job on many machines the release has both, and only the node with group rank 0
// reserves the port.
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

// What the store's process says, for the console.
inline std::string line_of_store(const guardian::Notice& notice) {
  return "ddprun: the workers' store " + printable(notice.text.data());
}

class MasterEndpoint {
 public:
  // Takes them for a new round. `job` is null on one machine. Throws UsageError or InternalError, as HeldPort does.
  // Opens the store of scripts there, in place of the one of the round before.
  void take(const Plan& plan, JobLink* job, GuardianLink& guardian) {
    end_store(guardian);
    if (job != nullptr) {
      held_.reset();  // before the next is taken, since it may be the same
      held_ = job->hold_master_port();
      address_ = job->master_address();
      port_ = job->release().master.port;
    } else {
      // A port that the user named stays reserved between rounds: otherwise another program could take it, and the job would
      // fail in its middle.
      if (!held_ || plan.master_port == 0 || held_->port() != plan.master_port) {
        held_.reset();
        held_.emplace(HeldPort::of(plan.master_port, plan.master_port_need, plan.rendezvous.port_range));
      }
      address_ = plan.master_addr;
      port_ = held_->port();
    }
    open_store(plan, job);
  }
  // Gives the store to the guardian. Call it when the workers of a new round have been started, which it must not delay; where
  // the others stay it may come before.
  void serve_store(GuardianLink& guardian) {
    const ListeningSockets sockets = std::exchange(store_, {});
    if (sockets.all().empty()) return;
    guardian.serve_store(sockets.all(), store_is_for_one_machine_);
    guardian_has_store_ = true;
  }
  void end_store(GuardianLink& guardian) {
    store_ = {};
    if (std::exchange(guardian_has_store_, false)) guardian.end_store();
  }
  void let_go() { held_.reset(); }
  // What workers are told of it.
  void tell(WorkerSettings& settings) const {
    settings.master_addr = address_;
    settings.master_port = port_;
    settings.agent_store = !rank_0_hosts_;
  }

 private:
  // Another node may have it, or rank 0 hosts it.
  void open_store(const Plan& plan, const JobLink* job) {
    rank_0_hosts_ = !plan.agent_store;
    if (!plan.agent_store || !held_) return;
    store_is_for_one_machine_ = job == nullptr;
    try {
      store_ = open_store_sockets({.master_addr = address_,
                                   .port = port_,
                                   .many_machines = job != nullptr,
                                   .own_address = job != nullptr ? job->own_address() : ""});
    } catch (const UsageError&) {
      if (job == nullptr) throw;
      rank_0_hosts_ = true;  // an agent of this machine listens there: then all is as without such a store
    }
  }

  std::optional<HeldPort> held_;
  std::string address_;
  int port_ = 0;
  bool rank_0_hosts_ = true;  // the store of scripts
  ListeningSockets store_;    // between open_store() and serve_store()
  bool store_is_for_one_machine_ = true;
  bool guardian_has_store_ = false;
};

}  // namespace ddprun
