// Implementation of etcd_arbiter.hpp. Each query opens a new connection, because queries are rare.
#include "rendezvous/shell/etcd_arbiter.hpp"

#include <deque>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "common/base/base64.hpp"
#include "rendezvous/transport/close_on_exec.hpp"

namespace ddprun::rendezvous {
namespace {

namespace http = boost::beast::http;
using boost::asio::ip::tcp;
using Error = boost::system::error_code;
using Json = nlohmann::json;

constexpr std::uint64_t kMaxBodyBytes = 64 << 10;
constexpr std::size_t kMaxReasonBytes = 200;

std::string host_and_port(const std::string& host, std::uint16_t port) {
  const bool bare_ipv6 = host.find(':') != std::string::npos;
  return (bare_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

// A pending query. The object keeps itself alive until it has called `then`.
class EtcdQuery : public std::enable_shared_from_this<EtcdQuery> {
 public:
  EtcdQuery(boost::asio::io_context& io, std::string name, std::string self, ArbiterPort::Then then)
      : socket_(io), timer_(io), name_(std::move(name)), self_(std::move(self)), then_(std::move(then)) {
    request_.method(http::verb::post);
    request_.target("/v3/kv/txn");
    request_.version(11);
    request_.set(http::field::host, name_);
    request_.set(http::field::content_type, "application/json");
    request_.set(http::field::connection, "close");
    parser_.body_limit(kMaxBodyBytes);
  }

  void begin(const std::string& key, milliseconds limit) {
    request_.body() = etcd_query(key, self_);
    request_.prepare_payload();
    timer_.expires_after(limit);
    timer_.async_wait([self = shared_from_this(), limit](const Error& error) {
      if (!error) self->fail("no response within " + std::to_string(limit.count()) + " ms");
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
  // Does not use asio::async_connect(), because its sockets are not close-on-exec, so child processes would inherit them.
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
        return self->fail("it returned HTTP status " + std::to_string(response.result_int()) + ": " +
                          response.body().substr(0, kMaxReasonBytes));
      }
      try {
        self->answer({etcd_answer(response.body(), self->self_), ""});
      } catch (const std::exception&) {
        self->fail("the server is not etcd 3.4 or later: " + response.body().substr(0, kMaxReasonBytes));
      }
    });
  }

  void fail(const std::string& why) { answer({BallotAnswer::kNone, "the arbiter at " + name_ + " made no decision: " + why}); }

  void answer(ArbiterReply reply) {
    timer_.cancel();
    Error ignored;
    socket_.close(ignored);
    if (const auto then = std::exchange(then_, {})) then(std::move(reply));
  }

  tcp::socket socket_;
  std::deque<tcp::endpoint> endpoints_;  // addresses that have not been tried yet
  boost::asio::steady_timer timer_;
  std::string name_;
  std::string self_;
  ArbiterPort::Then then_;
  http::request<http::string_body> request_;
  http::response_parser<http::string_body> parser_;
  boost::beast::flat_buffer buffer_;
};

}  // namespace

std::string etcd_query(const std::string& key, const std::string& self) {
  const std::string name = to_base64(key);  // the JSON form of protobuf encodes bytes as Base64
  return Json{{"compare", {{{"key", name}, {"target", "CREATE"}, {"result", "EQUAL"}, {"create_revision", "0"}}}},
              {"success", {{{"request_put", {{"key", name}, {"value", to_base64(self)}}}}}},
              {"failure", {{{"request_range", {{"key", name}}}}}}}
      .dump();
}

BallotAnswer etcd_answer(const std::string& body, const std::string& self) {
  const Json json = Json::parse(body);
  if (!json.contains("header")) throw std::runtime_error("not a response of etcd");
  if (json.value("succeeded", false)) return BallotAnswer::kMine;
  const Json& stored = json.at("responses").at(0).at("response_range").at("kvs").at(0).at("value");
  return stored.get<std::string>() == to_base64(self) ? BallotAnswer::kMine : BallotAnswer::kOthers;
}

EtcdArbiter::EtcdArbiter(boost::asio::io_context& io, std::string host, std::uint16_t port, std::string prefix)
    : io_(io), host_(std::move(host)), port_(port), prefix_(std::move(prefix)), names_([&io](std::function<void()> act) {
        boost::asio::post(io, std::move(act));
      }) {}

void EtcdArbiter::query(const std::string& key, const std::string& self, milliseconds limit, Then then) {
  const auto request = std::make_shared<EtcdQuery>(io_, host_and_port(host_, port_), self, std::move(then));
  request->begin(prefix_ + key, limit);
  Error error;
  const auto address = boost::asio::ip::make_address(host_, error);
  if (!error) return request->connect({.addresses = {address.to_string()}, .error = {}}, port_);
  names_.query(host_, [request, port = port_](const NameAnswer& name) { request->connect(name, port); });
}

}  // namespace ddprun::rendezvous
