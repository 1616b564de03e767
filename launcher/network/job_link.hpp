// Connects one node's agent to a multi-node job. It sits between AgentState (state of this node's workers) and NodeShell
// (agreement among nodes). launcher/agent/agent_shell.cpp creates one if there is more than one machine, and passes it a
// member's actions. It also serves the workers' store while this node is the coordinator, and holds the port that the next
// round may use as MASTER_PORT.
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
#include "launcher/decide/agent_state.hpp"
#include "launcher/guardian/last_word.hpp"
#include "launcher/machine/ports.hpp"
#include "launcher/machine/store_sockets.hpp"
#include "launcher/network/network_start.hpp"
#include "launcher/network/round_of_workers.hpp"
#include "launcher/network/store_clients.hpp"
#include "launcher/workers/store_server.hpp"

namespace ddprun {

class JobLink {
 public:
  struct Hooks {
    std::function<void(const AgentEvent&)> feed;
    std::function<void(const RunEvent&)> publish;
    // No worker may run past that time. The guardian then kills the workers.
    std::function<void(std::optional<std::chrono::nanoseconds> since_boot)> set_deadline;
    std::function<void(int local_rank, const channel::StoreReply&)> answer_worker;
    // The message that the guardian sends if this agent has died.
    std::function<void(const guardian::LastWord&)> entrust;
  };

  // Opens the ports. Throws UsageError or InternalError.
  JobLink(boost::asio::io_context& io, NetworkStart start, const Plan& plan, Hooks hooks);

  void begin();
  void carry_out(const agent_action::ReportFailure& action);
  void carry_out(const agent_action::ReportRoundOver& action);
  void carry_out(const agent_action::ReportSignal& action);
  void carry_out(const agent_action::ReportSteps& action);
  void ask_store(int local_rank, const channel::StoreRequest& request);
  // ---- questions of people (launcher/asked) ----
  bool leads() const { return shell_.leads(); }
  void ask_nodes(rendezvous::JobQuestion question) { shell_.local(rendezvous::member_event::AskJob{std::move(question)}); }
  void answer(rendezvous::NodeAnswer answer) { shell_.local(rendezvous::member_event::AnswerQuestion{std::move(answer)}); }
  void listen(std::function<void(const rendezvous::NodeQuestion&)> asked,
              std::function<void(const rendezvous::JobAnswer&)> answered) {
    asked_ = std::move(asked);
    answered_question_ = std::move(answered);
  }

  void note_checkpoint(std::int64_t step) { newest_checkpoint_ = std::max(newest_checkpoint_, step); }

  // ---- of the round that AgentState knows ----
  const rendezvous::Release& release() const { return round_.current(); }
  // MASTER_ADDR and MASTER_PORT for the workers of this node.
  rendezvous::Address master() const;
  // Reserves MASTER_PORT if rank 0 is on this node.
  std::optional<HeldPort> hold_master_port();
  // True if this agent itself listens at the round's MASTER_PORT and passes clients to the store.
  bool listens_for_store() const { return release().group_rank == 0 && release().master.port == shell_.port_with_store(); }
  ListeningSockets open_store(const StorePlace& place) { return store_clients_of_port_.open(addresses_of_store(place)); }
  void refuse_store_clients() { store_clients_of_port_.refuse(); }
  // This node's address as seen by other nodes; may be empty.
  const std::string& own_address() const { return shell_.own_address(); }
  FileQueue& records() { return shell_.records(); }
  // The time from the last answer of the coordinator to the end of the grant.
  double unanswered_s() const { return std::max(0.0, std::chrono::duration<double>(granted_until_ - answered_).count()); }

 private:
  void handle(rendezvous::CannotJoin&& event);
  void handle(rendezvous::NobodyThere&& event);
  void handle(rendezvous::EntrustFarewell&& event);
  void handle(rendezvous::member_action::StartWorkers&& event);
  void handle(rendezvous::member_action::ExtendGrant&& event);
  void handle(rendezvous::member_action::StopWorkers&& event);
  void handle(rendezvous::member_action::DismissHeld&& event);
  void handle(rendezvous::member_action::StopAndSave&& event);
  void handle(rendezvous::member_action::StopAt&& event);
  void handle(rendezvous::member_action::AnswerStore&& event);
  void handle(rendezvous::member_action::BeAsked&& event) {
    if (asked_) asked_(event.question);
  }
  void handle(rendezvous::member_action::HearAnswer&& event) {
    if (answered_question_) answered_question_(event.answer);
  }
  void handle(rendezvous::member_action::Say&& event);
  void handle(rendezvous::node_action::ServeStore&& event);
  void handle(rendezvous::node_action::Finish&& event);
  void say(rendezvous::NodeNotice::Kind kind, std::string text);
  void granted(rendezvous::Time until);
  rendezvous::Address named_master(const rendezvous::Release& release) const;
  void look_up_master();
  void feed_release();
  std::string how_to_join() const;
  rendezvous::NodeShellSettings complete(rendezvous::NodeShellSettings settings);

  const Plan& plan_;
  Hooks hooks_;
  std::string token_file_;
  bool closes_meet_port_;
  std::optional<HeldPort> next_port_;                // the port that is offered for the next round
  StoreClients store_clients_of_port_;               // connections to the scripts' store
  StoreServer store_;                                // the store for ddptrain's workers
  std::map<int, rendezvous::LinkId> store_clients_;  // by global rank
  rendezvous::RoundId store_round_{};
  RoundOfWorkers round_;
  NameLookup names_;
  boost::asio::steady_timer name_timer_;
  std::map<std::string, bool> is_loopback_name_;  // cached answers of the resolver
  rendezvous::Time answered_{};                   // when the newest grant arrived
  rendezvous::Time granted_until_{};
  std::int64_t newest_checkpoint_ = -1;
  std::int64_t resumed_from_ = -1;
  std::function<void(const rendezvous::NodeQuestion&)> asked_;
  std::function<void(const rendezvous::JobAnswer&)> answered_question_;
  rendezvous::NodeShell shell_;
};

}  // namespace ddprun
