#include "launcher/workers/store_server.hpp"

namespace ddprun {

void StoreServer::handle(int rank, const channel::StoreRequest& request) {
  answer(store_.handle(rank, request, std::chrono::steady_clock::now()));
}

void StoreServer::forget(int rank) {
  store_.forget(rank);
  arm();
}

void StoreServer::clear() {
  store_.clear();
  arm();
}

void StoreServer::answer(const std::vector<Store::Answer>& answers) {
  for (const Store::Answer& one : answers) reply_(one.client, one.reply);
  arm();
}

void StoreServer::arm() {
  const auto next = store_.next_deadline();
  if (next == armed_) return;
  armed_ = next;
  timer_.cancel();
  if (!next) return;
  timer_.expires_at(*next);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    armed_.reset();
    answer(store_.expire(std::chrono::steady_clock::now()));
  });
}

}  // namespace ddprun
