// One port for the coordinators of several jobs on one host (decision 14). The first one holds the port; it hands connections
// of other jobs, which their hello names, to those jobs' agents, and the port itself to one of them when it ends. Agents of one
// user find each other by abstract Unix sockets, which belong to the network namespace as ports do. The coordinator calls this
// instead of Transport::listen() where the user chose the port.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>

#include "rendezvous/transport/transport.hpp"

namespace ddprun {

// Listens on options.port, or waits as a guest of the agent of this user that has it. Throws UsageError when another user or
// program has it, or when an agent of the very same job already uses it. `transport` must outlive the listener. close_port() of
// a holder closes the port for everybody; its guests get the port when the listener ends.
std::unique_ptr<Listener> listen_on_shared_port(boost::asio::io_context& io, Transport& transport, ListenOptions options,
                                                std::function<void(std::shared_ptr<Connection>)> on_member);

}  // namespace ddprun
