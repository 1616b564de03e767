#include "rendezvous/shell/ports.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include <boost/asio/ip/address.hpp>

#include "common/base/error.hpp"
#include "rendezvous/transport/handover.hpp"
#include "rendezvous/wire/codec.hpp"

namespace ddprun::rendezvous {
namespace {

using Lead = NodeShellSettings::Lead;
using MeetPort = NodeShellSettings::MeetPort;

constexpr std::size_t kMaxQueuedBytes = 96u << 20;  // enough for a few values of maximum size in the workers' store

TransportLimits limits(milliseconds lease) {
  TransportLimits limits;
  limits.give_up_after(lease);
  limits.frame_bytes = kMaxFrameBytes;
  limits.write_queue_bytes = kMaxQueuedBytes;
  return limits;
}

TlsCredentials credentials(const NodeShellSettings& settings, std::string_view run_id, const InstanceId& instance) {
  return {.token = settings.token,
          .run_id = run_id,
          .protocol_version = static_cast<std::uint8_t>(kProtocolVersion),
          .instance = instance};
}

// Returns the local address of the default route, or "" if it is unknown. connect() of a UDP socket sends no packet; the kernel
// only looks up the route.
std::string address_of_route() {
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return "";
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(9);
  address.sin_addr.s_addr = htonl(0xC0000201);  // 192.0.2.1, an address that is reserved for documentation
  socklen_t size = sizeof address;
  const bool known = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                     ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0;
  return known ? boost::asio::ip::address_v4(ntohl(address.sin_addr.s_addr)).to_string() : "";
}

}  // namespace

NodePorts::NodePorts(boost::asio::io_context& io, NodeShellSettings& settings,
                     const std::function<void(const std::string&)>& log,
                     std::function<void(const std::shared_ptr<Connection>&)> on_member)
    : io_(io),
      settings_(settings),
      on_member_(std::move(on_member)),
      transport_(io, credentials(settings, settings.run_id, instance_), limits(settings.node.member.lease), log),
      join_transport_(io, credentials(settings, kJoinRunId, instance_), limits(settings.node.member.lease), log) {
  std::fill(settings.token.begin(), settings.token.end(), '\0');
  settings.token.clear();
  open_all();
  std::copy(transport_.run().begin(), transport_.run().end(), settings.node.member.run.begin());
}

std::shared_ptr<Listener> NodePorts::open(std::uint16_t port) {
  ListenOptions options;
  options.port = port;
  options.range = settings_.port_range;
  options.hand_over = [this](const ShortRunDigest& run, int fd, std::string_view hello) { return take_join(run, fd, hello); };
  if (port != 0 && settings_.closing == MeetPort::kServesStore) options.take_foreign = settings_.take_store_client;
  const bool shared = settings_.closing == MeetPort::kStays;
  if (shared) return listen_on_shared_port(io_, transport_, std::move(options), on_member_);
  return transport_.listen(std::move(options), on_member_);
}

void NodePorts::open_all() {
  MemberSettings& member = settings_.node.member;
  settings_.node.leads_first = settings_.lead != Lead::kNo;
  if (settings_.node.leads_first) {
    try {
      meet_listener_ = open(settings_.meet_port);
      settings_.meet_port = meet_listener_->local().port();
    } catch (const UsageError&) {
      if (settings_.lead == Lead::kYes) throw;
      settings_.node.leads_first = false;
    }
  }
  const bool one_port = meet_listener_ && settings_.closing != MeetPort::kClosesAtRelease;
  if (!one_port) listener_ = open(0);
  join_listener_ = join_transport_.listen(
      {.address = {}, .port = 0, .range = {}, .open = ListenOptions::Port::kNone, .hand_over = {}, .take_foreign = {}},
      [this](const std::shared_ptr<Connection>& connection) {
        connection->start({});
        connection->send(settings_.job);
        connection->finish();
      });
  member.listens = {.host = settings_.local_address, .port = (one_port ? meet_listener_ : listener_)->local().port()};
  member.own_host = address_of_route();
  if (member.own_host.empty()) member.own_host = "127.0.0.1";
  if (settings_.node.leads_first) {
    member.wanted_group_rank = 0;
    if (member.listens.host.empty()) member.listens.host = settings_.meet_host;
    if (member.listens.host.empty()) member.listens.host = member.own_host;
  } else {
    member.endpoints = {{settings_.meet_host.empty() ? "127.0.0.1" : settings_.meet_host, settings_.meet_port}};
    // --master-addr applies only on the first coordinator, and this node is not the first coordinator.
    settings_.node.coordinator.master_addr.clear();
    settings_.node.coordinator.master_port = 0;
  }
}

bool NodePorts::take_join(const ShortRunDigest& run, int fd, std::string_view hello) {
  if (run != join_transport_.run()) return false;
  Descriptor copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (copy.get() < 0) return false;
  join_listener_->adopt(std::move(copy), hello);
  return true;
}

void NodePorts::close_meet_port() {
  if (meet_listener_ && settings_.closing == MeetPort::kClosesAtRelease) meet_listener_.reset();
}

std::uint16_t NodePorts::port_with_store() const {
  return meet_listener_ && settings_.closing == MeetPort::kServesStore ? settings_.meet_port : 0;
}

void NodePorts::close() {
  meet_listener_.reset();
  listener_.reset();
}

}  // namespace ddprun::rendezvous
