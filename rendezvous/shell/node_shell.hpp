// Does the I/O for the rendezvous of one agent: it gives the pure Node (node.hpp) real connections, a timer and a file for its
// record. The launcher creates a NodeShell for a multi-node job. The launcher reports events of the workers to the NodeShell,
// and carries out the requests in the events of the NodeShell (ShellEvent). All calls are on one thread, without polling.
// Event handlers may call the NodeShell. Another thread writes the record, because a disk may stall. Messages that depend on
// the record wait for the write (record_gate.hpp), but leases do not.
//
// This class owns the timer, the record's file and the state machine. ports.hpp owns the listening ports, and links.hpp the
// connections. unreachable_peers.hpp decides which messages users get about peers that do not answer.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/system/file_queue.hpp"
#include "rendezvous/node/node.hpp"
#include "rendezvous/node/record_gate.hpp"
#include "rendezvous/shell/death_notice_port.hpp"
#include "rendezvous/shell/directory_arbiter.hpp"
#include "rendezvous/shell/etcd_arbiter.hpp"
#include "rendezvous/shell/job_marker.hpp"
#include "rendezvous/shell/links.hpp"
#include "rendezvous/shell/ports.hpp"
#include "rendezvous/shell/record_file.hpp"
#include "rendezvous/shell/settings.hpp"
#include "rendezvous/shell/unreachable_peers.hpp"

namespace ddprun::rendezvous {

// A request to the guardian (coordinator_action::SetDeathNotice). If this agent dies, the guardian waits until all workers have
// ended, removes the file `record`, and sends `text` to the address `to`.
struct UpdateDeathNotice {
  Address to{};  // port 0: cancels the previous request
  std::string text;
  std::filesystem::path record;
};
using ShellEvent = std::variant<NoNodeAnswers, UpdateDeathNotice, member_action::StartWorkers, member_action::ExtendWorkerLease,
                                member_action::StopWorkers, member_action::DismissHeld, StopAndSave, StopAt, StoreAnswer,
                                NodeQuery, JobAnswer, NodeNotice, node_action::ServeStore, node_action::Finish>;

class NodeShell : private Links::Events {
 public:
  // Opens the ports. Throws UsageError if another program uses one of them, and InternalError if the TLS module is missing.
  NodeShell(boost::asio::io_context& io, NodeShellSettings settings, std::function<void(ShellEvent)> on_event,
            std::function<void(const std::string&)> log);
  ~NodeShell();
  NodeShell(const NodeShell&) = delete;
  NodeShell& operator=(const NodeShell&) = delete;

  void begin();
  void local(MemberEvent event);
  void answer_store(LinkId link, StoreAnswer answer);
  // Closes the port at which the nodes first connect, so that rank 0 can open it. Has an effect only with
  // MeetPort::kClosesAtRelease.
  void close_meet_port() { ports_.close_meet_port(); }
  // Returns the port at which the nodes first connect; 0 if this process does not listen there, or if MeetPort is not
  // kServesStore.
  std::uint16_t port_with_store() const { return ports_.port_with_store(); }

  bool leads_first() const { return settings_.node.leads_first; }
  bool leads() const { return node_ && node_->coordinator() != nullptr; }
  // Returns the address that a user enters on other nodes to reach this node. Its port stays open for the whole job.
  Address meeting_point() const { return settings_.node.member.listens; }
  // Returns this node's address on the route to the other nodes; empty before the first connection.
  const std::string& own_address() const { return own_address_; }
  // Returns the address at the other end of the newest connection that this node has dialed. This is usually the coordinator's
  // address. The result is empty if this node has dialed no connection.
  const std::string& leader_address() const { return leader_address_; }
  // Returns the queue whose thread accesses the files of this node's record and job marker.
  FileQueue& records() { return record_queue_; }

 private:
  static Now now();

  void feed(NodeEvent event);
  void feed_pending();
  void carry_out(std::vector<NodeAction> actions);
  void carry_out(NodeAction& action);
  void write(const member_action::Remember& remember);
  void written(bool ok);
  void query(const node_action::QueryArbiter& action);
  void dial(LinkId link, const Address& address);
  void report(UnreachablePeers::Report report);
  void opened(LinkId link, const Connection& connection) override;
  void not_opened(LinkId link, const ConnectFailure& failure) override;
  void received(LinkId link, std::string_view frame) override;
  void lost(LinkId link, bool reset) override;
  void nothing_received(const Connection& connection) override;
  void all_sent() override { report_finished(); }
  void accepted(const std::shared_ptr<Connection>& connection);
  void finish(node_action::Finish action);
  void report_finished();
  void arm();

  boost::asio::io_context& io_;
  NodeShellSettings settings_;
  std::function<void(ShellEvent)> on_event_;
  std::function<void(const std::string&)> log_;
  std::string complaint_;  // a problem with the record file, logged in begin()
  bool write_failure_reported_ = false;
  NodePorts ports_;
  std::optional<RecordFile> record_file_;
  JobMarker marker_;
  FileQueue record_queue_;  // runs all accesses to the record file and the job marker
  // start time of this process in ns; larger than the start time of each earlier process with the same node id
  std::uint64_t incarnation_ = 0;
  RestoredState restored_state_;
  std::optional<Node> node_;
  RecordGate gate_;
  Links links_;
  DeathNoticePort death_notice_port_;
  std::optional<EtcdArbiter> etcd_;
  std::optional<DirectoryArbiter> directory_;
  boost::asio::steady_timer timer_;
  std::optional<Time> armed_;
  std::deque<NodeEvent> pending_;
  bool feeding_ = false;
  bool ended_ = false;  // true if the final event has been reported
  UnreachablePeers unreachable_peers_{Time{}};
  std::string own_address_;
  std::string leader_address_;
  std::optional<node_action::Finish> finish_;
  boost::asio::steady_timer linger_timer_;
  // callbacks in the queue check this pointer, because they may outlive this object
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace ddprun::rendezvous
