// Implementation of tls_session.hpp.
//
// Note: a refusal contains its reason. A user can correct the error only if the refused peer logs whether its token, its run
// id or its version is wrong. TLS has alerts for a wrong token (decrypt_error) and a wrong run id (unknown_psk_identity). For
// the other reasons we use alert numbers that no standard uses: kVersionAlert + our version, and kReflectedAlert if a peer has
// sent our own bytes back. Alerts are not encrypted at this point. A forged alert does not help an attacker. An attacker who
// can forge an alert can also cut the connection.
#include "rendezvous/identity/openssl/tls_session.hpp"

#include <openssl/err.h>

#include <algorithm>
#include <array>
#include <new>

namespace ddprun {
namespace {

constexpr int kDecryptErrorAlert = 51;
constexpr int kUnknownIdentityAlert = 115;
constexpr int kReflectedAlert = 223;
constexpr int kVersionAlert = 224;
constexpr char kHandshakeRecord = 0x16;
constexpr char kAlertRecord = 0x15;

}  // namespace

const BIO_METHOD* OpensslSession::bio_method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "ddprun");
    if (made == nullptr) throw std::bad_alloc();
    BIO_meth_set_read_ex(made, read_bio);
    BIO_meth_set_write_ex(made, write_bio);
    BIO_meth_set_ctrl(made, [](BIO*, int command, long, void*) -> long { return command == BIO_CTRL_FLUSH ? 1 : 0; });
    return made;
  }();
  return method;
}

int OpensslSession::read_bio(BIO* bio, char* into, std::size_t size, std::size_t* count) {
  auto& self = *static_cast<OpensslSession*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  *count = std::min(size, self.input_.size());
  if (*count == 0) {
    BIO_set_retry_read(bio);
    return 0;
  }
  std::copy_n(self.input_.data(), *count, into);
  self.input_.remove_prefix(*count);
  return 1;
}

int OpensslSession::write_bio(BIO* bio, const char* from, std::size_t size, std::size_t* count) {
  auto& self = *static_cast<OpensslSession*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  self.output_->append(from, size);
  *count = size;
  return 1;
}

OpensslSession::OpensslSession(const OpensslKeys& keys, TlsRole role)
    : keys_(keys), ssl_(SSL_new(keys.context())), role_(role) {
  BIO* const bio = ssl_ ? BIO_new(bio_method()) : nullptr;
  if (bio == nullptr) throw std::bad_alloc();
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_app_data(ssl_.get(), this);
  if (role == TlsRole::kServer) {
    SSL_set_accept_state(ssl_.get());
  } else {
    SSL_set_connect_state(ssl_.get());
    // Without this setting, a server that does not have the pre-shared key could complete the handshake with a certificate.
    SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, nullptr);
  }
}

int OpensslSession::offer_key(SSL* ssl, const EVP_MD*, const unsigned char** identity, std::size_t* length,
                              SSL_SESSION** session) {
  const auto& self = *static_cast<OpensslSession*>(SSL_get_app_data(ssl));
  *identity = reinterpret_cast<const unsigned char*>(self.keys_.identity().data());
  *length = self.keys_.identity().size();
  *session = self.keys_.key().release();
  return *session != nullptr ? 1 : 0;
}

int OpensslSession::find_key(SSL* ssl, const unsigned char* identity, std::size_t length, SSL_SESSION** session) {
  auto& self = *static_cast<OpensslSession*>(SSL_get_app_data(ssl));
  const TlsPeer& own = self.keys_.self();
  *session = nullptr;
  const auto peer = parse_identity({reinterpret_cast<const char*>(identity), length}, own.protocol_version);
  if (!peer) {
    self.refusal_ = PeerFault::kNoKey;
  } else {
    self.peer_ = *peer;
    if (peer->protocol_version != own.protocol_version) {
      self.refusal_ = PeerFault::kWrongVersion;
    } else if (peer->run != own.run) {
      self.refusal_ = PeerFault::kWrongRunId;
    } else if (peer->instance == own.instance) {
      self.refusal_ = PeerFault::kReflected;
    } else {
      *session = self.keys_.key().release();
    }
  }
  return *session != nullptr ? 1 : 0;
}

TlsState OpensslSession::start(std::string& to_peer) noexcept {
  output_ = &to_peer;
  if (role_ == TlsRole::kClient && state_ == TlsState::kHandshaking) start_handshake();
  output_ = nullptr;
  return state_;
}

TlsState OpensslSession::receive(std::string_view from_peer, std::string& plaintext, std::string& to_peer) noexcept {
  if (state_ == TlsState::kFailed || state_ == TlsState::kClosed) return state_;
  if (!received_ && !from_peer.empty()) {
    received_ = true;
    looks_like_tls_ = from_peer.front() == kHandshakeRecord || from_peer.front() == kAlertRecord;
  }
  input_ = from_peer;
  output_ = &to_peer;
  if (state_ == TlsState::kHandshaking) start_handshake();
  if (state_ == TlsState::kOpen) read_into(plaintext);
  input_ = {};
  output_ = nullptr;
  return state_;
}

void OpensslSession::start_handshake() noexcept {
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  if (result != 1) {
    const int error = SSL_get_error(ssl_.get(), result);
    if (error != SSL_ERROR_WANT_READ) fail(error);
    return;
  }
  // Accept the handshake only if it used our pre-shared key. The peer may have presented other credentials too.
  if (SSL_session_reused(ssl_.get()) != 1) {
    state_ = TlsState::kFailed;
    failure_ = PeerFault::kNoKey;
    return;
  }
  state_ = TlsState::kOpen;
}

void OpensslSession::read_into(std::string& plaintext) noexcept {
  std::array<char, 16 << 10> chunk;  // NOLINT: the maximum size of a TLS record, not initialized to save time
  for (;;) {
    std::size_t count = 0;
    ERR_clear_error();
    if (SSL_read_ex(ssl_.get(), chunk.data(), chunk.size(), &count) == 1) {
      plaintext.append(chunk.data(), count);
      continue;
    }
    const int error = SSL_get_error(ssl_.get(), 0);
    if (error == SSL_ERROR_ZERO_RETURN) {
      state_ = TlsState::kClosed;
    } else if (error != SSL_ERROR_WANT_READ) {
      fail(error);
    }
    return;
  }
}

TlsState OpensslSession::send(std::string_view plaintext, std::string& to_peer) noexcept {
  if (state_ != TlsState::kOpen || plaintext.empty()) return state_;
  output_ = &to_peer;
  ERR_clear_error();
  std::size_t count = 0;
  if (SSL_write_ex(ssl_.get(), plaintext.data(), plaintext.size(), &count) != 1) fail(SSL_get_error(ssl_.get(), 0));
  output_ = nullptr;
  return state_;
}

void OpensslSession::send_close_notify(std::string& to_peer) noexcept {
  if (state_ != TlsState::kOpen && state_ != TlsState::kClosed) return;
  output_ = &to_peer;
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  output_ = nullptr;
}

void OpensslSession::fail(int ssl_error) noexcept {
  const bool open = state_ == TlsState::kOpen;
  state_ = TlsState::kFailed;
  const unsigned long error = ERR_peek_error();
  if (const char* reason = ERR_reason_error_string(error); reason != nullptr) {
    detail_ = reason;
  } else {
    detail_ = "OpenSSL error " + std::to_string(ssl_error);
  }
  failure_ = open ? PeerFault::kBroken : reason_of(error);
  if (!open && role_ == TlsRole::kServer) replace_alert();
  ERR_clear_error();
}

PeerFault OpensslSession::reason_of(unsigned long error) noexcept {
  if (!looks_like_tls_) return PeerFault::kNotTls;
  if (refusal_ != PeerFault::kNone) return refusal_;
  const int reason = ERR_GET_REASON(error);
  if (role_ == TlsRole::kServer) {
    if (reason == SSL_R_BINDER_DOES_NOT_VERIFY) return PeerFault::kWrongToken;
    // If the peer has sent a valid ClientHello, but the wrong last message of the handshake, it does not have the key. It has
    // replayed a recorded ClientHello.
    return peer_.protocol_version != 0 ? PeerFault::kBroken : PeerFault::kNoKey;
  }
  return refusal_of(reason - SSL_AD_REASON_OFFSET);
}

// Converts the alert of the server into the reason why the server has refused this client.
PeerFault OpensslSession::refusal_of(int alert) noexcept {
  switch (alert) {
    case kDecryptErrorAlert:
      return PeerFault::kWrongToken;
    case kUnknownIdentityAlert:
      return PeerFault::kWrongRunId;
    case kReflectedAlert:
      return PeerFault::kReflected;
    default:
      break;
  }
  if (alert > kVersionAlert && alert <= kVersionAlert + kMaxProtocolVersion) {
    peer_.protocol_version = static_cast<std::uint8_t>(alert - kVersionAlert);
    return PeerFault::kWrongVersion;
  }
  return PeerFault::kNoKey;
}

void OpensslSession::replace_alert() noexcept {
  int alert = 0;
  // For this fault, OpenSSL 3.0 would send illegal_parameter, which does not name the reason.
  if (failure_ == PeerFault::kWrongToken) alert = kDecryptErrorAlert;
  if (failure_ == PeerFault::kWrongRunId) alert = kUnknownIdentityAlert;
  if (failure_ == PeerFault::kReflected) alert = kReflectedAlert;
  if (failure_ == PeerFault::kWrongVersion) alert = kVersionAlert + keys_.self().protocol_version;
  // a peer that does not use TLS cannot parse an alert, so no alert is sent
  if (failure_ == PeerFault::kNotTls) output_->clear();
  if (alert == 0) return;
  // Replaces the alert number, the last byte of the 7-byte alert record that OpenSSL has written. A refusal is the first record
  // that this side sends.
  if (output_->size() >= 7 && (*output_)[output_->size() - 7] == kAlertRecord) output_->back() = static_cast<char>(alert);
}

}  // namespace ddprun
