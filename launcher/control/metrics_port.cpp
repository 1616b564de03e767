// Implementation of metrics_port.hpp. It implements only the part of HTTP/1.1 that a scraper needs (RFC 9112).
#include "launcher/control/metrics_port.hpp"

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

constexpr std::size_t kMostScrapers = 64;
constexpr std::chrono::milliseconds kPauseOfScrapes{100};
constexpr std::chrono::milliseconds kFresh{50};  // age up to which an answer is reused
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
      : io(context), text(std::move(make_text)), acceptor(context), pause(context) {}

  boost::system::error_code listen(int port) {
    boost::system::error_code error;
    const tcp::endpoint endpoint(boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port));
    acceptor.open(endpoint.protocol(), error);
    if (!error) ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(static_cast<int>(kMostScrapers), error);
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

  // Descriptors or memory are exhausted. Without the pause accept() would fail again immediately and keep the agent busy.
  void accept_later() {
    pause.expires_after(kPauseOfScrapes);
    pause.async_wait([self = weak_from_this()](const boost::system::error_code& error) {
      const auto impl = self.lock();
      if (impl && !error) impl->accept();
    });
  }

  // Any local user can open connections that send nothing. So a new connection replaces the oldest one that has no answer yet.
  bool has_place() {
    std::erase_if(scrapers, [](const std::weak_ptr<Scraper>& one) { return one.expired(); });
    if (scrapers.size() < kMostScrapers) return true;
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

  void answer(const std::shared_ptr<Scraper>& scraper) {
    const std::string line = scraper->request.substr(0, scraper->request.find('\r'));
    const std::string what = line.substr(0, line.rfind(' '));
    if (!line.starts_with("GET ")) {
      scraper->answer = reply("405 Method Not Allowed", "only GET is answered\n");
    } else if (what != "GET /metrics" && !what.starts_with("GET /metrics?")) {
      scraper->answer = reply("404 Not Found", "the figures are at /metrics\n");
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
    if (made.empty() || now - made_at >= kFresh) {
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
  std::deque<std::weak_ptr<Scraper>> scrapers;  // the oldest first
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
