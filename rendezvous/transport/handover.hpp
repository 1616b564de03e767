// Lets the coordinators of several jobs on one host share one port (decision 14). The first coordinator holds the port. If a
// connection's ClientHello names another job, the holder passes the connection to the agent of that job. When the holder ends,
// it passes the listening socket to one of the other agents.
//
// The agents of one user find each other by abstract Unix sockets. Like ports, abstract sockets belong to a network namespace.
// If the user has chosen the port, the coordinator calls listen_on_shared_port() instead of Transport::listen().
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>

#include "rendezvous/transport/transport.hpp"

namespace ddprun {

// Listens on options.port. If another agent of this user already listens at this port, this agent gets its connections from
// the other agent, and waits for the port. Throws UsageError if another user or program uses the port, or if an agent of the
// same job uses it. `transport` must outlive the listener. If this agent holds the port, close_port() closes it for all jobs.
// After the listener is destroyed, a waiting agent gets the port.
std::shared_ptr<Listener> listen_on_shared_port(boost::asio::io_context& io, Transport& transport, ListenOptions options,
                                                std::function<void(std::shared_ptr<Connection>)> on_member);

}  // namespace ddprun
