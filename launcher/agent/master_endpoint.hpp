// MASTER_ADDR and MASTER_PORT of a round. On one machine the port is reserved for rank 0 until the next round (HeldPort). In a
// job on many machines the release has both, and only the node with group rank 0 reserves the port.
#pragma once

#include <optional>
#include <string>

#include "launcher/machine/ports.hpp"
#include "launcher/network/job_link.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

class MasterEndpoint {
 public:
  // Takes them for a new round. `job` is null on one machine. Throws UsageError or InternalError, as HeldPort does.
  void take(const Plan& plan, JobLink* job) {
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
  }
  void let_go() { held_.reset(); }
  const std::string& address() const { return address_; }
  int port() const { return port_; }

 private:
  std::optional<HeldPort> held_;
  std::string address_;
  int port_ = 0;
};

}  // namespace ddprun
