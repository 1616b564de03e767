// The connections of one node by the numbers that its machine knows them by: attempts to reach others, connections that are
// open, and those whose last words are still on their way. NodeShell (node_shell.hpp) has one and turns frames into messages.
// One thread; handlers may call back into it.
//
// It owns these three tables, and of which dialled links something came. A link that was closed here says nothing any more.
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
    std::function<void(LinkId, const Connection&)> opened;  // dialled or accepted; what is heard comes after it
    std::function<void(LinkId, const ConnectFailure&)> not_opened;
    std::function<void(LinkId, std::string_view frame)> heard;
    std::function<void(LinkId, bool reset)> lost;    // not closed here; reset: by the network
    std::function<void(const Connection&)> no_word;  // closed here, dialled, and nothing ever came
    std::function<void()> ended;                     // some connection, and what it had to say has gone
  };

  Links(boost::asio::io_context& io, Handlers handlers) : io_(io), handlers_(std::move(handlers)) {}
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  void dial(LinkId link, Transport& transport, ConnectOptions options);
  // A new number for it; `first_frame_bytes`: the most that it may say at first.
  void accept(const std::shared_ptr<Connection>& connection, std::size_t first_frame_bytes);
  void set_frame_limit(LinkId link, std::size_t bytes);
  // Of a peer that does not answer.
  void give_up_after(LinkId link, std::chrono::milliseconds silence);
  void send(LinkId link, std::string_view frame);
  // After what was sent before has gone.
  void close(LinkId link);
  void close_all();
  // At once, as if the other side had: it is lost.
  void cut(LinkId link);

  // Whether last words are on their way.
  bool are_leaving() const { return !leaving_.empty(); }
  void forget_leaving() { leaving_.clear(); }
  // Closes everything at once, for the end of the process.
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
  std::set<LinkId> heard_;  // dialled ones over which something came
  std::set<std::shared_ptr<Connection>> leaving_;
  LinkId next_accepted_ = 1;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // coroutines outlast this
};

}  // namespace ddprun::rendezvous
