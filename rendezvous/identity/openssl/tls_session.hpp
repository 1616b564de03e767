// One TLS connection, implemented with OpenSSL. The session checks that the peer has the job's token. If the session refuses
// the peer, failure() returns the reason. During a call, OpenSSL reads the input argument and appends to the output argument
// of the call. So an idle connection has no buffered bytes.
#pragma once

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "rendezvous/identity/openssl/keys.hpp"
#include "rendezvous/identity/tls.hpp"

namespace ddprun {

class OpensslSession final : public TlsSession {
 public:
  OpensslSession(const OpensslKeys& keys, TlsRole role);  // throws std::bad_alloc

  TlsState start(std::string& to_peer) noexcept override;
  TlsState receive(std::string_view from_peer, std::string& plaintext, std::string& to_peer) noexcept override;
  TlsState send(std::string_view plaintext, std::string& to_peer) noexcept override;
  void send_close_notify(std::string& to_peer) noexcept override;
  PeerFault failure() const noexcept override { return failure_; }
  const TlsPeer& peer() const noexcept override { return peer_; }
  const std::string& detail() const noexcept override { return detail_; }

  // OpenSSL's callbacks for pre-shared keys. On a server, find_key() finds the key that the client offers. On a client,
  // offer_key() offers the key.
  static int find_key(SSL* ssl, const unsigned char* identity, std::size_t length, SSL_SESSION** session);
  static int offer_key(SSL* ssl, const EVP_MD* digest, const unsigned char** identity, std::size_t* length,
                       SSL_SESSION** session);

 private:
  static const BIO_METHOD* bio_method();
  static int read_bio(BIO* bio, char* into, std::size_t size, std::size_t* count);
  static int write_bio(BIO* bio, const char* from, std::size_t size, std::size_t* count);

  void start_handshake() noexcept;
  void read_into(std::string& plaintext) noexcept;
  void fail(int ssl_error) noexcept;
  PeerFault reason_of(unsigned long error) noexcept;
  PeerFault refusal_of(int alert) noexcept;
  void replace_alert() noexcept;

  const OpensslKeys& keys_;
  std::unique_ptr<SSL, OpensslFree<SSL_free>> ssl_;
  TlsRole role_;
  TlsState state_ = TlsState::kHandshaking;
  PeerFault failure_ = PeerFault::kNone;
  PeerFault refusal_ = PeerFault::kNone;  // the reason why this server refuses the ClientHello
  bool looks_like_tls_ = true;
  bool received_ = false;
  TlsPeer peer_;
  std::string detail_;
  // the input and the output of the current call
  std::string_view input_;
  std::string* output_ = nullptr;
};

}  // namespace ddprun
