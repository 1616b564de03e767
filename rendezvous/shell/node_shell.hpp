// The I/O around the rendezvous of one agent: it gives Node (node.hpp) real connections, a timer and the file of its record.
// The launcher makes one for a multi-node job, reports events of the workers to it, and carries out the node's actions. It uses
// one thread and polls nothing; handlers may call back into it. Another thread writes the record, since a disk may stall.
// Messages that depend on the record wait for it (record_gate.hpp); leases do not.
//
// This class owns the listening ports, the timer, the record's file and the state machine, and reports why peers are
// unreachable. links.hpp owns the connections.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/system/file_queue.hpp"
#include "rendezvous/node/node.hpp"
#include "rendezvous/node/record_gate.hpp"
#include "rendezvous/shell/directory_arbiter.hpp"
#include "rendezvous/shell/etcd_arbiter.hpp"
#include "rendezvous/shell/farewell_port.hpp"
#include "rendezvous/shell/job_marker.hpp"
#include "rendezvous/shell/links.hpp"
#include "rendezvous/shell/record_file.hpp"
#include "rendezvous/transport/transport.hpp"

namespace ddprun::rendezvous {

// The run id with which `ddprun join` connects. It knows only the job's address and token, and gets NodeShellSettings::job.
inline constexpr const char* kJoinRunId = "ddprun join";

struct NodeShellSettings {
  NodeSettings node{};  // the shell fills in identity, addresses and endpoints
  std::string token;    // wiped after use
  std::string run_id;
  std::string job{};             // for `ddprun join`: config, arguments and options
  std::string program;           // the job's program: a record of another program at the same address belongs to another job
  std::filesystem::path marker;  // a file in the run directory which records that its job runs; may be empty
  std::string local_address;     // this node's address for other nodes; empty: that of the connected socket

  // The arbiter of two nodes: an etcd server, or else the run directory, if both nodes share it.
  Address arbiter{};                    // port 0: no arbiter
  std::filesystem::path run_directory;  // may be empty

  ListenPorts port_range{};  // free ports are taken from this range

  // The address at which the nodes meet.
  std::string meet_host;        // as given by the user
  std::uint16_t meet_port = 0;  // 0: a free one, on the node that leads first
  // kYes: this node leads first. kIfPortIsFree: it leads unless another agent has the port; then it follows that agent.
  enum class Lead { kNo, kIfPortIsFree, kYes } lead = Lead::kNo;
  // The other use of the port at which the nodes meet. kStays: none. Otherwise it is the script's MASTER_PORT. kServesStore:
  // this process keeps listening, and passes store clients to `take_store_client`. kClosesAtRelease: rank 0 opens the port.
  enum class MeetPort { kStays, kServesStore, kClosesAtRelease } closing = MeetPort::kStays;
  std::function<bool(int fd, std::string_view bytes)> take_store_client{};  // as in ListenOptions::take_foreign
};

// The node could not join the job, and a retry will not help.
struct CannotJoin {
  int exit_code = 0;
  std::string why;
};
// No node answers yet. `why` may be the reason; each reason is reported once.
struct NobodyThere {
  std::string why;
};
// An order to the guardian (coordinator_action::Entrust): it sends this text there after this agent has died, its workers are
// gone, and the record is removed.
struct EntrustFarewell {
  Address to{};  // port 0: the guardian sends nothing any more
  std::string text;
  std::filesystem::path record;
};
using ShellEvent =
    std::variant<CannotJoin, NobodyThere, EntrustFarewell, member_action::StartWorkers, member_action::ExtendGrant,
                 member_action::StopWorkers, member_action::DismissHeld, member_action::StopAndSave, member_action::StopAt,
                 member_action::AnswerStore, member_action::BeAsked, member_action::HearAnswer, member_action::Say,
                 node_action::ServeStore, node_action::Finish>;

class NodeShell {
 public:
  // Opens the ports. Throws UsageError if another program has one, and InternalError without the TLS module.
  NodeShell(boost::asio::io_context& io, NodeShellSettings settings, std::function<void(ShellEvent)> on_event,
            std::function<void(const std::string&)> log);
  ~NodeShell();
  NodeShell(const NodeShell&) = delete;
  NodeShell& operator=(const NodeShell&) = delete;

  void begin();
  void local(MemberEvent event);
  void answer_store(LinkId link, StoreAnswer answer);
  // With kClosesAtRelease, frees the port at which the nodes met, so that rank 0 can open it.
  void close_meet_port();
  // The port at which the nodes meet, if this process listens there with kServesStore; else 0.
  std::uint16_t port_with_store() const;

  bool leads_first() const { return settings_.node.leads_first; }
  bool leads() const { return node_ && node_->coordinator() != nullptr; }
  // The address that a user enters on other nodes to reach this one. Never the port that closes at a release.
  Address meeting_point() const;
  // This node's own address on the route to the others; empty before the first connection.
  const std::string& own_address() const { return own_address_; }
  // The other end of the connection to the coordinator; empty for the coordinator itself.
  const std::string& leader_address() const { return leader_address_; }
  // The queue whose thread reads and writes the files of this node's record and its run directory.
  FileQueue& records() { return record_queue_; }

 private:
  static Now now();

  void listen();
  std::unique_ptr<Listener> open(std::uint16_t port);
  bool take_join(const ShortRunDigest& run, int fd, std::string_view hello);
  void feed(NodeEvent event);
  void feed_pending();
  void carry_out(std::vector<NodeAction> actions);
  void carry_out(NodeAction& action);
  void write(const member_action::Remember& remember);
  void written(bool ok);
  void ask(const node_action::AskArbiter& action);
  void dial(LinkId link, const Address& address);
  void opened(LinkId link, const Connection& connection);
  void not_opened(LinkId link, const ConnectFailure& failure);
  void note_failure(const ConnectFailure& failure);
  bool waits_for_long() const;
  void note_silence(const Connection& connection);
  void accepted(const std::shared_ptr<Connection>& connection);
  void heard(LinkId link, std::string_view frame);
  void finish(node_action::Finish action);
  void say_finished();
  void arm();

  boost::asio::io_context& io_;
  NodeShellSettings settings_;
  std::function<void(ShellEvent)> on_event_;
  std::function<void(const std::string&)> log_;
  std::string complaint_;  // a problem with the record; reported when the node begins
  bool said_unwritten_ = false;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Transport> join_transport_;
  std::unique_ptr<Listener> join_listener_;
  std::unique_ptr<Listener> meet_listener_;
  std::unique_ptr<Listener> listener_;
  std::optional<RecordFile> record_file_;
  JobMarker marker_;
  FileQueue record_queue_;         // for all work on the record file and the marker
  std::uint64_t incarnation_ = 0;  // of this process
  Memory memory_;
  std::optional<Node> node_;
  RecordGate gate_;
  Links links_;
  FarewellPort farewell_port_;
  std::optional<EtcdArbiter> etcd_;
  std::optional<DirectoryArbiter> directory_;
  boost::asio::steady_timer timer_;
  std::optional<Time> armed_;
  std::deque<NodeEvent> pending_;
  bool feeding_ = false;
  bool welcome_ = false;  // a coordinator has answered, or this node is one
  bool failed_ = false;
  std::set<ConnectFailure::Kind> said_of_;
  bool said_silence_ = false;
  std::string last_failure_;
  Time began_{};
  std::string own_address_;
  std::string leader_address_;
  std::optional<node_action::Finish> finish_;
  boost::asio::steady_timer farewell_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // callbacks in the queue may outlive this object
};

}  // namespace ddprun::rendezvous
