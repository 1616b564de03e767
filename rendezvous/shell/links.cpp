#include "rendezvous/shell/links.hpp"

#include <utility>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>

namespace ddprun::rendezvous {

void Links::dial(LinkId link, Transport& transport, ConnectOptions options) {
  const auto dialling = std::make_shared<boost::asio::cancellation_signal>();
  dialling_[link] = dialling;
  boost::asio::co_spawn(
      io_, transport.connect(std::move(options)),
      boost::asio::bind_cancellation_slot(dialling->slot(), [this, link, dialling, alive = std::weak_ptr<int>(alive_)](
                                                                const std::exception_ptr& error, const ConnectResult& result) {
        if (alive.expired()) return;
        if (error) std::rethrow_exception(error);
        dialled(link, result);
      }));
}

void Links::dialled(LinkId link, const ConnectResult& result) {
  if (dialling_.erase(link) == 0) {  // close() has canceled this attempt to connect before it completed
    if (result.connection) result.connection->close();
    return;
  }
  if (!result.connection) return events_.not_opened(link, result.failure);
  use(link, result.connection);
}

void Links::accept(const std::shared_ptr<Connection>& connection, std::size_t first_frame_bytes) {
  const LinkId link = next_accepted_++;
  connection->set_frame_limit(first_frame_bytes);
  use(link, connection);
}

void Links::use(LinkId link, const std::shared_ptr<Connection>& connection) {
  open_[link] = connection;
  events_.opened(link, *connection);
  if (!open_.contains(link)) return;  // the handler of opened() has closed this link
  connection->start({[this, link](std::string_view frame) { received(link, frame); },
                     [this, link, connection](const Closed& closed) {
                       closing_.erase(connection);
                       lose(link, closed.reset);
                       events_.all_sent();
                     }});
}

void Links::received(LinkId link, std::string_view frame) {
  if (!open_.contains(link)) return;
  if ((link & kDialled) != 0) received_from_.insert(link);
  events_.received(link, frame);
}

void Links::lose(LinkId link, bool reset) {
  received_from_.erase(link);
  if (open_.erase(link) > 0) events_.lost(link, reset);
}

void Links::cut(LinkId link) {
  if (const auto found = open_.find(link); found != open_.end()) found->second->close();
  lose(link, /*reset=*/false);
}

void Links::close(LinkId link) {
  if (const auto dialling = dialling_.find(link); dialling != dialling_.end()) {
    const auto one = dialling->second;
    dialling_.erase(dialling);
    one->emit(boost::asio::cancellation_type::terminal);
    return;
  }
  const auto found = open_.find(link);
  if (found == open_.end()) return;
  const auto connection = found->second;
  open_.erase(found);
  if ((link & kDialled) != 0 && !received_from_.contains(link)) events_.nothing_received(*connection);
  received_from_.erase(link);
  if (connection->is_open()) closing_.insert(connection);
  connection->finish();
}

void Links::close_all() {
  while (!dialling_.empty()) close(dialling_.begin()->first);
  while (!open_.empty()) close(open_.begin()->first);
}

void Links::abandon() {
  for (const auto& [link, one] : dialling_) one->emit(boost::asio::cancellation_type::terminal);
  for (const auto& [link, connection] : open_) connection->close();
  for (const auto& connection : closing_) connection->close();
}

void Links::set_frame_limit(LinkId link, std::size_t bytes) {
  if (const auto found = open_.find(link); found != open_.end()) found->second->set_frame_limit(bytes);
}

void Links::give_up_after(LinkId link, std::chrono::milliseconds silence) {
  if (const auto found = open_.find(link); found != open_.end()) found->second->give_up_after(silence);
}

void Links::send(LinkId link, std::string_view frame) {
  if (const auto found = open_.find(link); found != open_.end()) found->second->send(frame);
}

}  // namespace ddprun::rendezvous
