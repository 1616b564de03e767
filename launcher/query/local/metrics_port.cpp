// Implementation of metrics_port.hpp. It supports only the part of HTTP/1.1 (RFC 9112) that a scraper needs.
#include "launcher/query/local/metrics_port.hpp"

#include <fcntl.h>

#include <chrono>
#include <deque>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

namespace ddprun {
namespace {

using boost::asio::ip::tcp;

constexpr std::size_t kMaxScrapers = 64;
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::chrono::milliseconds kCacheTime{50};  // maximum age of an answer that is reused
constexpr std::size_t kMaxRequestBytes = 4096;
constexpr std::chrono::seconds kScrapeTimeout{5};

std::string reply(const std::string& status, const std::string& body, const std::string& type = "text/plain; charset=utf-8") {
  return "HTTP/1.1 " + status + "\r\nContent-Type: " + type + "\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\nConnection: close\r\n\r\n" + body;
}

}  // namespace

struct MetricsPort::Impl : std::enable_shared_from_this<MetricsPort::Impl> {
  struct Scraper {
    Scraper(tcp::socket connected, boost::asio::io_context& io) : socket(std::move(connected)), timeout(io, kScrapeTimeout) {}
    tcp::socket socket;
    boost::asio::steady_timer timeout;
    std::string request;
    std::string answer;
  };

  Impl(boost::asio::io_context& context, std::function<std::string()> make_text)
      : io(context), text(std::move(make_text)), acceptor(context), pause(context) {}

  boost::system::error_code listen(int port) {
    boost::system::error_code error;
    const tcp::endpoint endpoint(boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port));
    acceptor.open(endpoint.protocol(), error);
    if (!error) ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(static_cast<int>(kMaxScrapers), error);
    if (!error) accept();
    return error;
  }

  void accept() {
    acceptor.async_accept([self = weak_from_this()](const boost::system::error_code& error, tcp::socket socket) {
      const auto impl = self.lock();
      if (!impl || error == boost::asio::error::operation_aborted) return;
      if (!error && impl->has_place()) impl->serve(std::move(socket));
      if (!error || error == boost::asio::error::connection_aborted) return impl->accept();
      impl->accept_later();
    });
  }

  // Waits before the next accept(), because no descriptors or memory are left. Without this pause, accept() would fail again
  // immediately and keep the agent busy.
  void accept_later() {
    pause.expires_after(kAcceptPause);
    pause.async_wait([self = weak_from_this()](const boost::system::error_code& error) {
      const auto impl = self.lock();
      if (impl && !error) impl->accept();
    });
  }

  // Makes space for a new connection. Any local user can open connections and send nothing. So at the limit, the new connection
  // replaces the oldest one that has no answer yet. Returns false if all connections have answers.
  bool has_place() {
    std::erase_if(scrapers, [](const std::weak_ptr<Scraper>& one) { return one.expired(); });
    if (scrapers.size() < kMaxScrapers) return true;
    for (auto one = scrapers.begin(); one != scrapers.end(); ++one) {
      const auto scraper = one->lock();
      if (!scraper || !scraper->answer.empty()) continue;
      boost::system::error_code ignored;
      scraper->socket.close(ignored);
      scrapers.erase(one);
      return true;
    }
    return false;
  }

  void serve(tcp::socket socket) {
    ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
    const auto scraper = std::make_shared<Scraper>(std::move(socket), io);
    scrapers.push_back(scraper);
    scraper->timeout.async_wait([weak = std::weak_ptr(scraper)](const boost::system::error_code& error) {
      boost::system::error_code ignored;
      if (const auto slow = weak.lock(); slow && !error) slow->socket.close(ignored);
    });
    boost::asio::async_read_until(scraper->socket, boost::asio::dynamic_buffer(scraper->request, kMaxRequestBytes), "\r\n\r\n",
                                  [self = weak_from_this(), scraper](const boost::system::error_code& error, std::size_t) {
                                    const auto impl = self.lock();
                                    if (impl && !error) impl->answer(scraper);
                                  });
  }

  void answer(const std::shared_ptr<Scraper>& scraper) {
    const std::string line = scraper->request.substr(0, scraper->request.find('\r'));
    const std::string what = line.substr(0, line.rfind(' '));
    if (!line.starts_with("GET ")) {
      scraper->answer = reply("405 Method Not Allowed", "only GET is supported\n");
    } else if (what != "GET /metrics" && !what.starts_with("GET /metrics?")) {
      scraper->answer = reply("404 Not Found", "the metrics are at /metrics\n");
    } else {
      scraper->answer = reply("200 OK", fresh_text(), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    }
    boost::asio::async_write(scraper->socket, boost::asio::buffer(scraper->answer),
                             [scraper](const boost::system::error_code&, std::size_t) {
                               boost::system::error_code ignored;
                               scraper->socket.shutdown(tcp::socket::shutdown_both, ignored);
                             });
  }

  const std::string& fresh_text() {
    const auto now = std::chrono::steady_clock::now();
    if (made.empty() || now - made_at >= kCacheTime) {
      made = text();
      made_at = now;
    }
    return made;
  }

  boost::asio::io_context& io;
  std::function<std::string()> text;
  std::string made;
  std::chrono::steady_clock::time_point made_at;
  tcp::acceptor acceptor;
  boost::asio::steady_timer pause;
  std::deque<std::weak_ptr<Scraper>> scrapers;  // clients in the order of their connections, oldest first
};

MetricsPort::MetricsPort(boost::asio::io_context& io, int port, std::function<std::string()> text,
                         const std::function<void(const std::string&)>& notify)
    : impl_(std::make_shared<Impl>(io, std::move(text))) {
  if (const auto error = impl_->listen(port)) {
    notify("--metrics-port " + std::to_string(port) + ": " + error.message() + "; the job runs without a metrics port");
  }
}

MetricsPort::~MetricsPort() = default;

}  // namespace ddprun
