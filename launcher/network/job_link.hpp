// Connects one node's agent to a multi-node job. AgentState decides about the workers of this node, and through NodeShell the
// nodes agree on rounds. JobLink translates the actions of AgentState into events for NodeShell, and the events of NodeShell
// into events for AgentState (translation.hpp). launcher/agent/agent_shell.cpp creates a JobLink if the job may have several
// nodes.
//
// JobLink also has two duties for the workers. While this node is the coordinator, it serves the store of ddptrain's workers.
// Before each round it reserves the port that the round may use as MASTER_PORT.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/system/name_lookup.hpp"
#include "launcher/agent_state/agent_state.hpp"
#include "launcher/guardian/death_notice.hpp"
#include "launcher/machine/ports.hpp"
#include "launcher/network/network_start.hpp"
#include "launcher/network/release_state.hpp"
#include "launcher/network/store_clients.hpp"
#include "launcher/network/translation.hpp"
#include "launcher/tcp_store/store_sockets.hpp"
#include "launcher/workers/store_server.hpp"

namespace ddprun {

class JobLink {
 public:
  struct Agent {
    virtual void feed(const AgentEvent& event) = 0;
    virtual void publish(const RunEvent& event) = 0;
    // Sets the time after which no worker of this node may run, as time since boot. The guardian kills the workers then.
    // nullopt: no limit.
    virtual void set_deadline(std::optional<std::chrono::nanoseconds> since_boot) = 0;
    virtual void answer_worker(int local_rank, const channel::StoreReply& reply) = 0;
    // Sets the message that the guardian sends if this agent dies.
    virtual void set_death_notice(const guardian::DeathNotice& notice) = 0;

   protected:
    ~Agent() = default;
  };
  // Handlers for queries from users (launcher/query/cluster).
  struct Queries {
    virtual void on_query(const rendezvous::NodeQuery& query) = 0;    // called for a query that this node must answer
    virtual void on_answer(const rendezvous::JobAnswer& answer) = 0;  // called for an answer to a query that this node has sent

   protected:
    ~Queries() = default;
  };

  // Opens the ports for other nodes. Throws UsageError or InternalError.
  JobLink(boost::asio::io_context& io, NetworkStart start, const Plan& plan, Agent& agent);

  void begin();
  // Reports to the coordinator. With ReportRoundOver, it also reports the port that this node reserves for the next round.
  void carry_out(const auto& report) { shell_.local(to_member(report)); }
  void carry_out(const agent_action::ReportRoundOver& action);
  void send_store_request(int local_rank, const channel::StoreRequest& request);
  // ---- queries of users ----
  bool leads() const { return shell_.leads(); }
  void send_query(rendezvous::ClusterQuery query) { shell_.local(std::move(query)); }
  void answer(rendezvous::NodeAnswer answer) { shell_.local(std::move(answer)); }
  void set_queries(Queries& queries) { queries_ = &queries; }

  void note_checkpoint(std::int64_t step) { newest_checkpoint_ = std::max(newest_checkpoint_, step); }

  // ---- the round that AgentState is running ----
  const rendezvous::Release& release() const { return release_state_.current(); }
  // Returns MASTER_ADDR and MASTER_PORT for the workers of this node.
  rendezvous::Address master() const;
  // Reserves MASTER_PORT if rank 0 is on this node. Otherwise returns nullopt.
  std::optional<HeldPort> hold_master_port();
  // Returns true if this agent listens on the round's MASTER_PORT and passes the clients to the store.
  bool listens_for_store() const { return release().group_rank == 0 && release().master.port == shell_.port_with_store(); }
  ListeningSockets open_store(const StorePlace& place) { return store_clients_of_port_.open(addresses_of_store(place)); }
  void refuse_store_clients() { store_clients_of_port_.refuse(); }
  // Returns this node's address on the route to the other nodes; empty before the first connection.
  const std::string& own_address() const { return shell_.own_address(); }
  FileQueue& records() { return shell_.records(); }
  // Returns the seconds from the coordinator's last answer to the end of the worker lease.
  double unanswered_s() const { return std::max(0.0, std::chrono::duration<double>(lease_until_ - answered_).count()); }

 private:
  void handle(auto&& order) { agent_.feed(to_agent(order)); }  // an order that the agent state machine carries out
  void handle(rendezvous::NoNodeAnswers&& event);
  void handle(rendezvous::UpdateDeathNotice&& event);
  void handle(rendezvous::member_action::StartWorkers&& event);
  void handle(rendezvous::member_action::ExtendWorkerLease&& event);
  void handle(rendezvous::member_action::StopWorkers&& event);
  void handle(rendezvous::StoreAnswer&& event);
  void handle(rendezvous::NodeQuery&& event) {
    if (queries_ != nullptr) queries_->on_query(event);
  }
  void handle(rendezvous::JobAnswer&& event) {
    if (queries_ != nullptr) queries_->on_answer(event);
  }
  void handle(rendezvous::NodeNotice&& notice);
  void handle(rendezvous::node_action::ServeStore&& event);
  void handle(rendezvous::node_action::Finish&& event);
  void publish_notice(rendezvous::NodeNotice::Kind kind, std::string text);
  void extend_lease(rendezvous::Time until);
  rendezvous::Address named_master(const rendezvous::Release& release) const;
  void look_up_master();
  void feed_release();
  std::string join_hint() const;
  rendezvous::NodeShellSettings complete(rendezvous::NodeShellSettings settings);

  const Plan& plan_;
  Agent& agent_;
  std::string token_file_;
  bool closes_meet_port_;
  std::optional<HeldPort> next_port_;                // the port that this node reserves as MASTER_PORT of the next round
  StoreClients store_clients_of_port_;               // connections to a script's store
  StoreServer store_;                                // the store of ddptrain's workers, while this node is the coordinator
  std::map<int, rendezvous::LinkId> store_clients_;  // the connection of each client of store_, by global rank
  rendezvous::RoundId store_round_{};
  ReleaseState release_state_;
  NameLookup names_;
  boost::asio::steady_timer name_timer_;
  std::map<std::string, bool> is_loopback_name_;  // by host name: whether the resolver returned a loopback address
  rendezvous::Time answered_{};                   // time of the coordinator's last answer, which extended the worker lease
  rendezvous::Time lease_until_{};
  std::int64_t newest_checkpoint_ = -1;
  std::int64_t resumed_from_ = -1;
  Queries* queries_ = nullptr;
  rendezvous::NodeShell shell_;
};

}  // namespace ddprun
