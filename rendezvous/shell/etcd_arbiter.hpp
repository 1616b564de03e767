// Implements an arbiter that uses an etcd server. For each vote, etcd stores one key, whose value is the winner. The key is
// created once and never changed. One transaction of etcd's JSON gateway (POST /v3/kv/txn) creates the key if it does not
// exist, and reads the key if it exists. The connection is plain HTTP, without TLS or a user name. NodeShell (node_shell.hpp)
// uses this class.
#pragma once

#include <cstdint>
#include <string>

#include <boost/asio/io_context.hpp>

#include "common/system/name_lookup.hpp"
#include "rendezvous/shell/arbiter_port.hpp"

namespace ddprun::rendezvous {

class EtcdArbiter : public ArbiterPort {
 public:
  // Each key starts with `prefix`.
  EtcdArbiter(boost::asio::io_context& io, std::string host, std::uint16_t port, std::string prefix);

  void query(const std::string& key, const std::string& self, milliseconds limit, Then then) override;

 private:
  boost::asio::io_context& io_;
  std::string host_;
  std::uint16_t port_;
  std::string prefix_;
  NameLookup names_;
};

// Returns the JSON text of the transaction.
std::string etcd_query(const std::string& key, const std::string& self);
// Returns the arbiter's answer in etcd's response `body`. Throws an exception if `body` is not a response to this transaction.
BallotAnswer etcd_answer(const std::string& body, const std::string& self);

}  // namespace ddprun::rendezvous
