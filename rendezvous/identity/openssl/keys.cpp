#include "rendezvous/identity/openssl/keys.hpp"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/sha.h>

#include <algorithm>
#include <stdexcept>

#include "rendezvous/identity/openssl/tls_session.hpp"

namespace ddprun {
namespace {

constexpr std::string_view kMark = "ddprun";
constexpr std::string_view kKeyLabel = "ddprun rendezvous key";
constexpr std::string_view kRunLabel = "ddprun run id";
constexpr std::size_t kKeyBytes = 32;
// This is TLS_AES_128_GCM_SHA256. In TLS 1.3, a pre-shared key is valid only with the hash function of one cipher suite.
constexpr std::array<unsigned char, 2> kCipher{0x13, 0x01};

using Kdf = std::unique_ptr<EVP_KDF, OpensslFree<EVP_KDF_free>>;
using KdfContext = std::unique_ptr<EVP_KDF_CTX, OpensslFree<EVP_KDF_CTX_free>>;

void require(bool worked) {
  if (!worked) throw std::runtime_error("OpenSSL");
}

OSSL_PARAM octets(const char* name, std::string_view value) {
  return OSSL_PARAM_construct_octet_string(name, const_cast<char*>(value.data()), value.size());
}

// Derives the key with HKDF (RFC 5869). The input key is the token, the salt is our label, and the info is the protocol version
// and the run id.
std::array<unsigned char, kKeyBytes> derive_key(const TlsCredentials& credentials) {
  std::string info(1, static_cast<char>(credentials.protocol_version));
  info += credentials.run_id;
  char digest[] = "SHA256";
  const std::array parameters{OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
                              octets(OSSL_KDF_PARAM_KEY, credentials.token), octets(OSSL_KDF_PARAM_SALT, kKeyLabel),
                              octets(OSSL_KDF_PARAM_INFO, info), OSSL_PARAM_construct_end()};
  const Kdf kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  const KdfContext context(kdf ? EVP_KDF_CTX_new(kdf.get()) : nullptr);
  std::array<unsigned char, kKeyBytes> key{};
  require(context && EVP_KDF_derive(context.get(), key.data(), key.size(), parameters.data()) == 1);
  return key;
}

SslContextPointer make_context(OpensslKeys* keys) {
  SslContextPointer context(SSL_CTX_new(TLS_method()));
  require(context != nullptr);
  SSL_CTX* const c = context.get();
  require(SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) == 1 && SSL_CTX_set_max_proto_version(c, TLS1_3_VERSION) == 1);
  require(SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256") == 1);
  require(SSL_CTX_set1_groups_list(c, "X25519:P-256") == 1);
  SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // SSL_OP_ENABLE_MIDDLEBOX_COMPAT disguises the handshake as TLS 1.2. We clear this option, because no middlebox between the
  // nodes of a job needs it. SSL_OP_ALLOW_NO_DHE_KEX is cleared so that both sides refuse a key exchange without
  // Diffie-Hellman.
  SSL_CTX_clear_options(c, SSL_OP_ENABLE_MIDDLEBOX_COMPAT | SSL_OP_ALLOW_NO_DHE_KEX);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(c, 0);
  SSL_CTX_set_max_early_data(c, 0);
  SSL_CTX_set_recv_max_early_data(c, 0);
  // An idle connection frees its buffers. With ten thousand connections, these buffers would need a lot of memory.
  SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_psk_find_session_callback(c, OpensslSession::find_key);
  SSL_CTX_set_psk_use_session_callback(c, OpensslSession::offer_key);
  SSL_CTX_set_app_data(c, keys);
  return context;
}

SslSessionPointer make_key(SSL_CTX* context, const TlsCredentials& credentials) {
  const std::unique_ptr<SSL, OpensslFree<SSL_free>> any(SSL_new(context));
  const SSL_CIPHER* const cipher = any ? SSL_CIPHER_find(any.get(), kCipher.data()) : nullptr;
  SslSessionPointer session(SSL_SESSION_new());
  require(cipher != nullptr && session != nullptr);
  auto key = derive_key(credentials);
  const bool set = SSL_SESSION_set1_master_key(session.get(), key.data(), key.size()) == 1;
  OPENSSL_cleanse(key.data(), key.size());
  require(set && SSL_SESSION_set_cipher(session.get(), cipher) == 1 &&
          SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) == 1);
  return session;
}

}  // namespace

std::string to_identity(const TlsPeer& self) {
  std::string identity(kMark);
  identity.push_back(static_cast<char>(self.protocol_version));
  identity.append(self.run.begin(), self.run.end());
  identity.append(self.instance.begin(), self.instance.end());
  return identity;
}

std::optional<TlsPeer> parse_identity(std::string_view identity, std::uint8_t own_version) {
  TlsPeer peer;
  if (!identity.starts_with(kMark) || identity.size() <= kMark.size()) return std::nullopt;
  identity.remove_prefix(kMark.size());
  peer.protocol_version = static_cast<std::uint8_t>(identity.front());
  identity.remove_prefix(1);
  if (peer.protocol_version != own_version) return peer;
  if (identity.size() != peer.run.size() + peer.instance.size()) return std::nullopt;
  std::copy_n(identity.begin(), peer.run.size(), peer.run.begin());
  std::copy_n(identity.begin() + peer.run.size(), peer.instance.size(), peer.instance.begin());
  return peer;
}

ShortRunDigest digest_of_run(std::string_view run_id) {
  const std::string text = std::string(kRunLabel) + '\0' + std::string(run_id);
  std::array<unsigned char, SHA256_DIGEST_LENGTH> whole{};
  require(EVP_Digest(text.data(), text.size(), whole.data(), nullptr, EVP_sha256(), nullptr) == 1);
  ShortRunDigest digest{};
  std::copy_n(whole.begin(), digest.size(), digest.begin());
  return digest;
}

OpensslKeys::OpensslKeys(const TlsCredentials& credentials)
    : self_{credentials.protocol_version, digest_of_run(credentials.run_id), credentials.instance},
      identity_(to_identity(self_)),
      context_(make_context(this)),
      key_(make_key(context_.get(), credentials)) {}

std::unique_ptr<TlsSession> OpensslKeys::open(TlsRole role) noexcept {
  try {
    return std::make_unique<OpensslSession>(*this, role);
  } catch (const std::exception&) {
    return nullptr;
  }
}

SslSessionPointer OpensslKeys::key() const {
  return SslSessionPointer(SSL_SESSION_dup(key_.get()));
}

}  // namespace ddprun
