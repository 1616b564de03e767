// The keys of one job inside OpenSSL. They are derived from token, run id and protocol version, and offered or looked up in a
// handshake. session.hpp uses them for each connection.
#pragma once

#include <openssl/ssl.h>

#include <optional>
#include <vector>

#include "rendezvous/identity/tls.hpp"

namespace ddprun {

template <auto kFree>
struct OpensslFree {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using SslContextPointer = std::unique_ptr<SSL_CTX, OpensslFree<SSL_CTX_free>>;
using SslSessionPointer = std::unique_ptr<SSL_SESSION, OpensslFree<SSL_SESSION_free>>;

// The PSK identity that a client sends in its hello. It is clear text, but the handshake binds it to the key. It is "ddprun",
// one byte of protocol version, the run's digest, and the instance. Its first seven bytes keep their place in every version.
std::string to_identity(const TlsPeer& self);

// Returns nullopt if `identity` was not made by ddprun. From an identity of another version it reads only the version.
std::optional<TlsPeer> parse_identity(std::string_view identity, std::uint8_t own_version);

ShortRunDigest digest_of_run(std::string_view run_id);

class OpensslKeys final : public TlsKeys {
 public:
  // Throws std::bad_alloc or std::runtime_error; module.cpp catches both.
  explicit OpensslKeys(const TlsCredentials& credentials);

  std::unique_ptr<TlsSession> open(TlsRole role) noexcept override;
  const ShortRunDigest& run() const noexcept override { return self_.run; }

  SSL_CTX* context() const { return context_.get(); }
  const TlsPeer& self() const { return self_; }
  const std::string& identity() const { return identity_; }
  // A copy of the key as an SSL_SESSION. Each connection gets its own, since TLS writes into it.
  SslSessionPointer key() const;

 private:
  TlsPeer self_;
  std::string identity_;
  SslContextPointer context_;
  SslSessionPointer key_;
};

}  // namespace ddprun
