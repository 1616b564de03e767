// Implementation of death_notice_port.hpp. A death notice consists of the text "ddprun farewell", the term, the round, and a
// digest. The term and the round are 64-bit big-endian numbers. The digest covers the job's key and all preceding bytes.
#include "rendezvous/shell/death_notice_port.hpp"

#include <unistd.h>

#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/v6_only.hpp>

#include "rendezvous/identity/random_bytes.hpp"
#include "rendezvous/transport/close_on_exec.hpp"
#include "rendezvous/transport/transport.hpp"

namespace ddprun::rendezvous {
namespace {

using boost::asio::ip::udp;

constexpr std::string_view kMagic = "ddprun farewell";
constexpr std::size_t kHeader = 15 + 8 + 8;

void append(std::string& text, std::uint64_t number) {
  for (int shift = 56; shift >= 0; shift -= 8) text.push_back(static_cast<char>(number >> static_cast<unsigned>(shift)));
}
std::uint64_t number_at(std::string_view text, std::size_t at) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < 8; ++i) number = number << 8U | static_cast<unsigned char>(text[at + i]);
  return number;
}

// Compares in constant time. If the time depended on the bytes, a peer could measure the time of the answer, and guess the
// digest byte by byte.
bool are_equal(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i])));
  }
  return difference == 0;
}

}  // namespace

std::string death_notice_text(const DeathNoticeKey& key, const RoundId& round) {
  std::string text(kMagic);
  append(text, round.term);
  append(text, static_cast<std::uint64_t>(round.round));
  const auto digest = tls_module().digest_of(std::string(key.begin(), key.end()) + text);
  text.append(digest.begin(), digest.end());
  return text;
}

DeathNoticePort::DeathNoticePort(boost::asio::io_context& io, const ListenPorts& range,
                                 std::function<void(const RoundId&)> on_notice)
    : socket_(io), on_notice_(std::move(on_notice)), key_(random_bytes<std::tuple_size_v<DeathNoticeKey>>()) {
  boost::system::error_code error;
  open(udp::v6(), range, error);
  if (error) open(udp::v4(), range, error);  // the machine does not support IPv6
  if (error) return;
  port_ = socket_.local_endpoint(error).port();
  socket_.non_blocking(true, error);
  receive();
}

void DeathNoticePort::open(const udp& protocol, const ListenPorts& range, boost::system::error_code& error) {
  boost::system::error_code ignored;
  socket_.close(ignored);
  open_close_on_exec(socket_, protocol, error);
  if (!error && protocol == udp::v6()) socket_.set_option(boost::asio::ip::v6_only(false), error);
  if (error) return;
  // if no range is given, the size is 1 and the only port is 0, which means any port
  const int size = range.high - range.low + 1;
  for (int i = 0; i < size; ++i) {
    // Each process starts its search at a different port, as for TCP.
    const int port = range.low + static_cast<int>((::getpid() * 6007LL + i) % size);
    socket_.bind({protocol, static_cast<std::uint16_t>(port)}, error);
    if (!error) return;
  }
}

void DeathNoticePort::receive() {
  socket_.async_receive_from(boost::asio::buffer(buffer_), from_,
                             [this](const boost::system::error_code& error, std::size_t size) {
                               if (error == boost::asio::error::operation_aborted) return;
                               if (!error) handle_datagram(size);
                               if (!error || error == boost::asio::error::connection_refused) receive();
                             });
}

// Answers a valid death notice with the same bytes. A guardian that receives its death notice back stops sending it.
void DeathNoticePort::handle_datagram(std::size_t size) {
  const std::string_view text(buffer_.data(), size);
  if (size < kHeader || !text.starts_with(kMagic)) return;
  const RoundId round{number_at(text, kMagic.size()), static_cast<std::int64_t>(number_at(text, kMagic.size() + 8))};
  if (!are_equal(text, death_notice_text(key_, round))) return;
  boost::system::error_code ignored;
  socket_.send_to(boost::asio::buffer(text), from_, 0, ignored);
  on_notice_(round);
}

}  // namespace ddprun::rendezvous
