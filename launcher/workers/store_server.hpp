// Serves the store of ddptrain's workers over the worker channels. Store (rendezvous/channel_store/channel_store.hpp) is the
// state machine. This class adds the timer for the deadlines of waiting requests.
#pragma once

#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/channel/message.hpp"
#include "rendezvous/channel_store/channel_store.hpp"

namespace ddprun {

class StoreServer {
 public:
  using Reply = std::function<void(int rank, const channel::StoreReply&)>;

  StoreServer(boost::asio::io_context& io, Reply reply) : timer_(io), reply_(std::move(reply)) {}

  void handle(int rank, const channel::StoreRequest& request);
  void forget(int rank);
  void clear();  // removes all keys and waiting requests; call it when a new round starts

 private:
  void answer(const std::vector<Store::Answer>& answers);
  void arm();

  Store store_;
  boost::asio::steady_timer timer_;
  std::optional<Store::TimePoint> armed_;
  Reply reply_;
};

}  // namespace ddprun
