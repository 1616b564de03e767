// Owns the connections of one node, indexed by the LinkId that the node's state machine uses. There are three kinds: pending
// attempts to connect, open connections, and closing connections that are still sending queued data. NodeShell
// (node_shell.hpp) uses this class, and decodes the frames. All calls are on one thread. Handlers of events may call this
// class.
//
// This class owns a table for each kind of connection, and the set of dialed links over which a frame has arrived. After this
// node has closed a link, the only event that may still follow for this link is nothing_received().
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string_view>

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>

#include "rendezvous/protocol/link.hpp"
#include "rendezvous/transport/transport.hpp"

namespace ddprun::rendezvous {

class Links {
 public:
  class Events {
   public:
    // a connection that this node dialed or accepted is open; called before its first frame is received
    virtual void opened(LinkId link, const Connection& connection) = 0;
    virtual void not_opened(LinkId link, const ConnectFailure& failure) = 0;
    virtual void received(LinkId link, std::string_view frame) = 0;
    // `reset`: true if the network reset the connection, false if the other node closed it
    virtual void lost(LinkId link, bool reset) = 0;
    // this node has closed a dialed link that never received a frame
    virtual void nothing_received(const Connection& connection) = 0;
    virtual void all_sent() = 0;  // a closing connection has sent all queued data

   protected:
    ~Events() = default;
  };

  Links(boost::asio::io_context& io, Events& events) : io_(io), events_(events) {}
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  void dial(LinkId link, Transport& transport, ConnectOptions options);
  // Gives an accepted connection a LinkId. Its frames may be at most `first_frame_bytes` long until set_frame_limit() is
  // called.
  void accept(const std::shared_ptr<Connection>& connection, std::size_t first_frame_bytes);
  void set_frame_limit(LinkId link, std::size_t bytes);
  // Sets for how long the other node may leave data unacknowledged. After that time, the connection counts as lost.
  void give_up_after(LinkId link, std::chrono::milliseconds silence);
  void send(LinkId link, std::string_view frame);
  // Closes the link after all queued data has been sent.
  void close(LinkId link);
  void close_all();
  // Closes the link immediately, and calls `lost` as if the other node had closed it.
  void cut(LinkId link);

  // Returns true if a closing connection is still sending queued data.
  bool are_closing() const { return !closing_.empty(); }
  void forget_closing() { closing_.clear(); }
  // Closes all connections immediately, for the end of the process.
  void abandon();

 private:
  void dialled(LinkId link, const ConnectResult& result);
  void use(LinkId link, const std::shared_ptr<Connection>& connection);
  void received(LinkId link, std::string_view frame);
  void lose(LinkId link, bool reset);

  boost::asio::io_context& io_;
  Events& events_;
  std::map<LinkId, std::shared_ptr<boost::asio::cancellation_signal>> dialling_;
  std::map<LinkId, std::shared_ptr<Connection>> open_;
  std::set<LinkId> received_from_;  // dialed links over which a frame has arrived
  std::set<std::shared_ptr<Connection>> closing_;
  LinkId next_accepted_ = 1;
  // coroutines check this pointer, because they may outlive this object
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace ddprun::rendezvous
