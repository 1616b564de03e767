// The connections of one node, by the numbers (LinkId) that its state machine uses: pending dials, open connections, and
// closing ones that still send queued data. NodeShell (node_shell.hpp) has one and turns frames into messages. One thread;
// handlers may call back into it.
//
// This class owns these three tables, and records which dialed links have received anything. A link that this side has closed
// calls no handler any more.
#pragma once

#include <chrono>
#include <functional>
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
  struct Handlers {
    std::function<void(LinkId, const Connection&)> opened;  // dialed or accepted; always before `heard`
    std::function<void(LinkId, const ConnectFailure&)> not_opened;
    std::function<void(LinkId, std::string_view frame)> heard;
    std::function<void(LinkId, bool reset)> lost;    // closed by the other side or the network; `reset`: by the network
    std::function<void(const Connection&)> no_word;  // this side has closed a dialed connection that never received anything
    std::function<void()> ended;                     // a closing connection has sent all queued data
  };

  Links(boost::asio::io_context& io, Handlers handlers) : io_(io), handlers_(std::move(handlers)) {}
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  void dial(LinkId link, Transport& transport, ConnectOptions options);
  // Gives an accepted connection a new number. Its first frames may have at most `first_frame_bytes`.
  void accept(const std::shared_ptr<Connection>& connection, std::size_t first_frame_bytes);
  void set_frame_limit(LinkId link, std::size_t bytes);
  // Sets how long the peer may leave data unacknowledged.
  void give_up_after(LinkId link, std::chrono::milliseconds silence);
  void send(LinkId link, std::string_view frame);
  // Closes the link after all queued data has been sent.
  void close(LinkId link);
  void close_all();
  // Closes the link immediately, and calls `lost` as if the other side had closed it.
  void cut(LinkId link);

  // True if a closing connection still sends.
  bool are_leaving() const { return !leaving_.empty(); }
  void forget_leaving() { leaving_.clear(); }
  // Closes everything immediately, for the end of the process.
  void abandon();

 private:
  struct Dialling {
    boost::asio::cancellation_signal cancel;
  };

  void dialled(LinkId link, const ConnectResult& result);
  void use(LinkId link, const std::shared_ptr<Connection>& connection);
  void heard(LinkId link, std::string_view frame);
  void lose(LinkId link, bool reset);

  boost::asio::io_context& io_;
  Handlers handlers_;
  std::map<LinkId, std::shared_ptr<Dialling>> dialling_;
  std::map<LinkId, std::shared_ptr<Connection>> open_;
  std::set<LinkId> heard_;  // dialed links that have received anything
  std::set<std::shared_ptr<Connection>> leaving_;
  LinkId next_accepted_ = 1;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // coroutines may outlive this object
};

}  // namespace ddprun::rendezvous
