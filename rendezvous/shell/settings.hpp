// The settings of a NodeShell (node_shell.hpp). The launcher sets them. All types are plain values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "rendezvous/node/node.hpp"
#include "rendezvous/transport/transport.hpp"

namespace ddprun::rendezvous {

// The run id with which `ddprun join` connects, because that command has only the job's address and token. A client with this
// run id receives NodeShellSettings::job.
inline constexpr const char* kJoinRunId = "ddprun join";

struct NodeShellSettings {
  NodeSettings node{};  // settings of the state machines; the shell itself sets the identity, addresses and endpoints
  std::string token;    // the job's token; wiped after use
  std::string run_id;
  std::string job{};             // the text that a client of `ddprun join` receives: config, arguments and options
  std::string program;           // the job's program and arguments; a record with another program belongs to another job
  std::filesystem::path marker;  // path of the job marker (job_marker.hpp); may be empty
  // address at which other nodes can reach this node; if empty, the local address of its connections to other nodes is used
  std::string local_address;

  // The arbiter of a round of two nodes. If `arbiter` has an address, an etcd server at this address is the arbiter. If not,
  // the run directory is the arbiter if both nodes share it.
  Address arbiter{};                    // port 0: no arbiter
  std::filesystem::path run_directory;  // may be empty

  ListenPorts port_range{};  // if a port number is 0, a free port of this range is used

  // The address to which all nodes first connect.
  std::string meet_host;        // host name or address as the user has entered it
  std::uint16_t meet_port = 0;  // 0: the job's first coordinator selects a free port
  // Whether this node is the job's first coordinator. kIfPortIsFree: yes, unless another agent already listens on the port.
  enum class Lead { kNo, kIfPortIsFree, kYes } lead = Lead::kNo;
  // Whether the port to which all nodes first connect is also the MASTER_PORT of the script:
  //   kStays            no
  //   kServesStore      yes: this process continues to listen there, and passes clients of the store to `take_store_client`
  //   kClosesAtRelease  yes: this process closes the port when a round starts, so that rank 0 can open it
  enum class MeetPort { kStays, kServesStore, kClosesAtRelease } closing = MeetPort::kStays;
  // serves a client of the store; arguments and result as in ListenOptions::take_foreign
  std::function<bool(int fd, std::string_view bytes)> take_store_client{};
};

}  // namespace ddprun::rendezvous
