// One port for the coordinators of several jobs on one host (decision 14). The first one holds the port. It hands connections
// of other jobs to the agents of those jobs, as named in their hello. When it ends, it hands the port itself to one of them.
// Agents of one user find each other by abstract Unix sockets, which belong to the network namespace as ports do. If the user
// chose the port, the coordinator calls this instead of Transport::listen().
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>

#include "rendezvous/transport/transport.hpp"

namespace ddprun {

// Listens on options.port, or waits as a guest of the agent of this user that has it. Throws UsageError if another user or
// program has it, or if an agent of the same job already uses it. `transport` must outlive the listener. close_port() of a
// holder closes the port for all jobs; its guests get the port when the listener ends.
std::unique_ptr<Listener> listen_on_shared_port(boost::asio::io_context& io, Transport& transport, ListenOptions options,
                                                std::function<void(std::shared_ptr<Connection>)> on_member);

}  // namespace ddprun
