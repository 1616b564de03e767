// Serves the workers' store (rendezvous/store/store.hpp) over their channels: the state machine plus one timer for the waiters'
// deadlines.
#pragma once

#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/channel/message.hpp"
#include "rendezvous/store/store.hpp"

namespace ddprun {

class StoreServer {
 public:
  using Reply = std::function<void(int rank, const channel::StoreReply&)>;

  StoreServer(boost::asio::io_context& io, Reply reply) : timer_(io), reply_(std::move(reply)) {}

  void handle(int rank, const channel::StoreRequest& request);
  void forget(int rank);
  void clear();  // call it for a new round

 private:
  void answer(const std::vector<Store::Answer>& answers);
  void arm();

  Store store_;
  boost::asio::steady_timer timer_;
  std::optional<Store::TimePoint> armed_;
  Reply reply_;
};

}  // namespace ddprun
