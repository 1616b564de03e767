// The pre-shared key of one job, as an OpenSSL object. The key is derived from the token, the run id and the protocol version.
// In a handshake, a client offers the key, and a server finds the key by its identity (tls_session.hpp).
#pragma once

#include <openssl/ssl.h>

#include <optional>

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

// Returns the PSK identity that a client sends in its ClientHello: "ddprun", one byte with the protocol version, the digest of
// the run id, and the instance id. The identity is not encrypted, but the handshake authenticates it with the key. The first
// seven bytes have the same format in every version. So each side can read the version of the other side.
std::string to_identity(const TlsPeer& self);

// Parses a PSK identity. Returns nullopt if it was not sent by ddprun. If the sender has another protocol version, only the
// version is set.
std::optional<TlsPeer> parse_identity(std::string_view identity, std::uint8_t own_version);

ShortRunDigest digest_of_run(std::string_view run_id);

class OpensslKeys final : public TlsKeys {
 public:
  // Throws std::bad_alloc or std::runtime_error. module.cpp catches both.
  explicit OpensslKeys(const TlsCredentials& credentials);

  std::unique_ptr<TlsSession> open(TlsRole role) noexcept override;
  const ShortRunDigest& run() const noexcept override { return self_.run; }

  SSL_CTX* context() const { return context_.get(); }
  const TlsPeer& self() const { return self_; }
  const std::string& identity() const { return identity_; }
  // Returns a copy of the key as an SSL_SESSION. Each connection needs a separate copy, because OpenSSL writes into the copy.
  SslSessionPointer key() const;

 private:
  TlsPeer self_;
  std::string identity_;
  SslContextPointer context_;
  SslSessionPointer key_;
};

}  // namespace ddprun
