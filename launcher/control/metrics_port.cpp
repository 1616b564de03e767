// Implementation of metrics_port.hpp: as much of HTTP/1.1 as a scraper needs (RFC 9112).
#include "launcher/control/metrics_port.hpp"

#include <fcntl.h>

#include <chrono>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

namespace ddprun {
namespace {

using boost::asio::ip::tcp;

constexpr int kMostScrapers = 8;
constexpr std::size_t kMostOfRequest = 4096;
constexpr std::chrono::seconds kScrapedWithin{5};

std::string reply(const std::string& status, const std::string& body, const std::string& type = "text/plain; charset=utf-8") {
  return "HTTP/1.1 " + status + "\r\nContent-Type: " + type + "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nConnection: close\r\n\r\n" + body;
}

}  // namespace

struct MetricsPort::Impl : std::enable_shared_from_this<MetricsPort::Impl> {
  struct Scraper {
    Scraper(tcp::socket connected, boost::asio::io_context& io) : socket(std::move(connected)), patience(io, kScrapedWithin) {}
    tcp::socket socket;
    boost::asio::steady_timer patience;
    std::string request;
    std::string answer;
  };

  Impl(boost::asio::io_context& context, std::function<std::string()> make_text)
      : io(context), text(std::move(make_text)), acceptor(context) {}

  boost::system::error_code listen(int port) {
    boost::system::error_code error;
    const tcp::endpoint endpoint(boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port));
    acceptor.open(endpoint.protocol(), error);
    if (!error) ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(kMostScrapers, error);
    if (!error) accept();
    return error;
  }

  void accept() {
    acceptor.async_accept([self = weak_from_this()](const boost::system::error_code& error, tcp::socket socket) {
      const auto impl = self.lock();
      if (!impl || error == boost::asio::error::operation_aborted) return;
      if (!error && impl->scrapers < kMostScrapers) impl->serve(std::move(socket));
      // With no descriptor left, accept() would fail again at once and keep the agent busy: it is deaf from then on.
      if (!error || error == boost::asio::error::connection_aborted) impl->accept();
    });
  }

  void serve(tcp::socket socket) {
    ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
    ++scrapers;
    const std::shared_ptr<Scraper> scraper(new Scraper(std::move(socket), io), [self = weak_from_this()](Scraper* gone) {
      delete gone;
      if (const auto impl = self.lock()) --impl->scrapers;
    });
    scraper->patience.async_wait([weak = std::weak_ptr(scraper)](const boost::system::error_code& error) {
      boost::system::error_code ignored;
      if (const auto slow = weak.lock(); slow && !error) slow->socket.close(ignored);
    });
    boost::asio::async_read_until(scraper->socket, boost::asio::dynamic_buffer(scraper->request, kMostOfRequest), "\r\n\r\n",
                                  [self = weak_from_this(), scraper](const boost::system::error_code& error, std::size_t) {
                                    const auto impl = self.lock();
                                    if (impl && !error) impl->answer(scraper);
                                  });
  }

  void answer(const std::shared_ptr<Scraper>& scraper) const {
    const std::string line = scraper->request.substr(0, scraper->request.find('\r'));
    const std::string what = line.substr(0, line.rfind(' '));
    if (!line.starts_with("GET ")) {
      scraper->answer = reply("405 Method Not Allowed", "only GET is answered\n");
    } else if (what != "GET /metrics" && !what.starts_with("GET /metrics?")) {
      scraper->answer = reply("404 Not Found", "the figures are at /metrics\n");
    } else {
      scraper->answer = reply("200 OK", text(), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    }
    boost::asio::async_write(scraper->socket, boost::asio::buffer(scraper->answer),
                             [scraper](const boost::system::error_code&, std::size_t) {
                               boost::system::error_code ignored;
                               scraper->socket.shutdown(tcp::socket::shutdown_both, ignored);
                             });
  }

  boost::asio::io_context& io;
  std::function<std::string()> text;
  tcp::acceptor acceptor;
  int scrapers = 0;
};

MetricsPort::MetricsPort(boost::asio::io_context& io, int port, std::function<std::string()> text,
                         const std::function<void(const std::string&)>& say)
    : impl_(std::make_shared<Impl>(io, std::move(text))) {
  if (const auto error = impl_->listen(port)) {
    say("--metrics-port " + std::to_string(port) + ": " + error.message() + "; the job runs without it");
  }
}

MetricsPort::~MetricsPort() = default;

}  // namespace ddprun
