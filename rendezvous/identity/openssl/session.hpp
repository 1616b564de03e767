// One connection inside OpenSSL. It checks that the peer has the job's token; failure() is the reason for a refusal. Its BIO
// reads from the input of the current call and appends to the output of the current call, so an idle connection holds no bytes.
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
  void say_goodbye(std::string& to_peer) noexcept override;
  TlsFailure failure() const noexcept override { return failure_; }
  const TlsPeer& peer() const noexcept override { return peer_; }
  const std::string& detail() const noexcept override { return detail_; }

  // OpenSSL's callbacks for external keys.
  static int find_key(SSL* ssl, const unsigned char* identity, std::size_t length, SSL_SESSION** session);
  static int offer_key(SSL* ssl, const EVP_MD* digest, const unsigned char** identity, std::size_t* length,
                       SSL_SESSION** session);

 private:
  static const BIO_METHOD* bio_method();
  static int read_bio(BIO* bio, char* into, std::size_t size, std::size_t* count);
  static int write_bio(BIO* bio, const char* from, std::size_t size, std::size_t* count);

  void shake_hands() noexcept;
  void read_into(std::string& plaintext) noexcept;
  void fail(int ssl_error) noexcept;
  TlsFailure reason_of(unsigned long error) noexcept;
  TlsFailure refusal_of(int alert) noexcept;
  void replace_alert() noexcept;

  const OpensslKeys& keys_;
  std::unique_ptr<SSL, OpensslFree<SSL_free>> ssl_;
  TlsRole role_;
  TlsState state_ = TlsState::kHandshaking;
  TlsFailure failure_ = TlsFailure::kNone;
  TlsFailure refusal_ = TlsFailure::kNone;  // why a server refuses the hello that it reads
  bool looks_like_tls_ = true;
  bool received_ = false;
  TlsPeer peer_;
  std::string detail_;
  // Both are valid only during a call.
  std::string_view input_;
  std::string* output_ = nullptr;
};

}  // namespace ddprun
