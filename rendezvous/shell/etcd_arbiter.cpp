// Implementation of etcd_arbiter.hpp: one connection per query, since queries are rare.
#include "rendezvous/shell/etcd_arbiter.hpp"

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "common/base/base64.hpp"
#include "common/system/close_on_exec.hpp"

namespace ddprun::rendezvous {
namespace {

namespace http = boost::beast::http;
using boost::asio::ip::tcp;
using Error = boost::system::error_code;
using Json = nlohmann::json;

constexpr std::uint64_t kMostOfBody = 64 << 10;
constexpr std::size_t kMostOfReason = 200;

std::string where(const std::string& host, std::uint16_t port) {
  const bool bare_ipv6 = host.find(':') != std::string::npos;
  return (bare_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

// A pending query. The object keeps itself alive until etcd has answered.
class EtcdQuestion : public std::enable_shared_from_this<EtcdQuestion> {
 public:
  EtcdQuestion(boost::asio::io_context& io, std::string name, std::string self, ArbiterPort::Then then)
      : socket_(io), timer_(io), name_(std::move(name)), self_(std::move(self)), then_(std::move(then)) {
    request_.method(http::verb::post);
    request_.target("/v3/kv/txn");
    request_.version(11);
    request_.set(http::field::host, name_);
    request_.set(http::field::content_type, "application/json");
    request_.set(http::field::connection, "close");
    parser_.body_limit(kMostOfBody);
  }

  void begin(const std::string& key, milliseconds limit) {
    request_.body() = etcd_question(key, self_);
    request_.prepare_payload();
    timer_.expires_after(limit);
    timer_.async_wait([self = shared_from_this(), limit](const Error& error) {
      if (!error) self->fail("nothing came within " + std::to_string(limit.count()) + " ms");
    });
  }

  void connect(const NameAnswer& name, std::uint16_t port) {
    if (!then_) return;
    for (const std::string& number : name.addresses) {
      Error error;
      const auto address = boost::asio::ip::make_address(number, error);
      if (!error) endpoints_.emplace_back(address, port);
    }
    if (endpoints_.empty()) return fail(name.error.empty() ? "its name has no address" : name.error);
    connect_to_next();
  }

 private:
  // asio::async_connect() would open sockets that child processes inherit.
  void connect_to_next() {
    const tcp::endpoint endpoint = endpoints_.front();
    endpoints_.pop_front();
    Error error;
    socket_.close(error);
    open_close_on_exec(socket_, endpoint.protocol(), error);
    if (error) return failed_to_connect(error);
    socket_.async_connect(endpoint, [self = shared_from_this()](const Error& failure) {
      if (!self->then_) return;
      if (failure) return self->failed_to_connect(failure);
      http::async_write(self->socket_, self->request_, [self](const Error& failed, std::size_t) {
        if (failed) return self->fail(failed.message());
        self->read();
      });
    });
  }

  void failed_to_connect(const Error& error) {
    if (endpoints_.empty()) return fail(error.message());
    connect_to_next();
  }

  void read() {
    http::async_read(socket_, buffer_, parser_, [self = shared_from_this()](const Error& error, std::size_t) {
      if (error) return self->fail(error.message());
      const auto& response = self->parser_.get();
      if (response.result() != http::status::ok) {
        return self->fail("it answered " + std::to_string(response.result_int()) + ", " +
                          response.body().substr(0, kMostOfReason));
      }
      try {
        self->answer({etcd_answer(response.body(), self->self_), ""});
      } catch (const std::exception&) {
        self->fail("what answers there is no etcd of version 3.4 or later: " + response.body().substr(0, kMostOfReason));
      }
    });
  }

  void fail(const std::string& why) { answer({BallotAnswer::kNone, "the arbiter at " + name_ + " did not answer: " + why}); }

  void answer(ArbiterReply reply) {
    timer_.cancel();
    Error ignored;
    socket_.close(ignored);
    if (const auto then = std::exchange(then_, {})) then(std::move(reply));
  }

  tcp::socket socket_;
  std::deque<tcp::endpoint> endpoints_;  // not tried yet
  boost::asio::steady_timer timer_;
  std::string name_;
  std::string self_;
  ArbiterPort::Then then_;
  http::request<http::string_body> request_;
  http::response_parser<http::string_body> parser_;
  boost::beast::flat_buffer buffer_;
};

}  // namespace

std::string etcd_question(const std::string& key, const std::string& self) {
  const std::string name = to_base64(key);  // protobuf's JSON form encodes bytes in base64
  return Json{{"compare", {{{"key", name}, {"target", "CREATE"}, {"result", "EQUAL"}, {"create_revision", "0"}}}},
              {"success", {{{"request_put", {{"key", name}, {"value", to_base64(self)}}}}}},
              {"failure", {{{"request_range", {{"key", name}}}}}}}
      .dump();
}

BallotAnswer etcd_answer(const std::string& body, const std::string& self) {
  const Json json = Json::parse(body);
  if (!json.contains("header")) throw std::runtime_error("no answer of etcd");
  if (json.value("succeeded", false)) return BallotAnswer::kMine;
  const Json& there = json.at("responses").at(0).at("response_range").at("kvs").at(0).at("value");
  return there.get<std::string>() == to_base64(self) ? BallotAnswer::kMine : BallotAnswer::kOthers;
}

EtcdArbiter::EtcdArbiter(boost::asio::io_context& io, std::string host, std::uint16_t port, std::string prefix)
    : io_(io), host_(std::move(host)), port_(port), prefix_(std::move(prefix)), names_([&io](std::function<void()> act) {
        boost::asio::post(io, std::move(act));
      }) {}

void EtcdArbiter::ask(const std::string& place, const std::string& self, milliseconds limit, Then then) {
  const auto question = std::make_shared<EtcdQuestion>(io_, where(host_, port_), self, std::move(then));
  question->begin(prefix_ + place, limit);
  Error error;
  const auto address = boost::asio::ip::make_address(host_, error);
  if (!error) return question->connect({.addresses = {address.to_string()}, .error = {}}, port_);
  names_.ask(host_, [question, port = port_](const NameAnswer& name) { question->connect(name, port); });
}

}  // namespace ddprun::rendezvous
