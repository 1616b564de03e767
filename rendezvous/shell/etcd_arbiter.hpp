// An etcd server as arbiter. A key names the node that may lead; it is made once and never changed. One transaction of etcd's
// JSON gateway (POST /v3/kv/txn) puts the key if it does not exist, and reads it otherwise. It is plain HTTP, without TLS or
// user. node_shell.hpp owns one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "common/system/name_lookup.hpp"
#include "rendezvous/shell/arbiter_port.hpp"

namespace ddprun::rendezvous {

class EtcdArbiter : public ArbiterPort {
 public:
  // `prefix` is the start of each key's name.
  EtcdArbiter(boost::asio::io_context& io, std::string host, std::uint16_t port, std::string prefix);

  void ask(const std::string& place, const std::string& self, milliseconds limit, Then then) override;

 private:
  boost::asio::io_context& io_;
  std::string host_;
  std::uint16_t port_;
  std::string prefix_;
  NameLookup names_;
};

// The text of the transaction, and the meaning of etcd's answer. Throws std::runtime_error for any other text.
std::string etcd_question(const std::string& key, const std::string& self);
BallotAnswer etcd_answer(const std::string& body, const std::string& self);

}  // namespace ddprun::rendezvous
