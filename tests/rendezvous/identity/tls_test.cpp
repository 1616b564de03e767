// Tests the TLS code without sockets: which peers can connect, and that modified bytes are detected. A peer that has no token
// must be refused, even if it presents a certificate, or offers a weaker key exchange or plain text.
#include "rendezvous/identity/tls.hpp"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <functional>

#include "common/base/error.hpp"

namespace ddprun::test {
namespace {

constexpr std::string_view kTlsToken = "5f0c6c1e9a47b83d20d1e4f7a95b3c68f21d0e7b4a8896c35d1f2e0b7a4c9d83";

std::unique_ptr<TlsKeys> keys(std::string_view token = kTlsToken, std::string_view run_id = "job", std::uint8_t version = 1) {
  return derive_keys({token, run_id, version, new_instance_id()});
}

using Change = std::function<void(std::string& bytes)>;

// Both ends of a TLS connection, and the bytes in flight between the two.
struct Pair {
  Pair(TlsKeys& client_keys, TlsKeys& server_keys)
      : client(client_keys.open(TlsRole::kClient)), server(server_keys.open(TlsRole::kServer)) {
    client->start(to_server);
  }
  // Delivers the bytes in flight in both directions. `change` may modify the bytes that are sent to the server.
  void exchange(const Change& change = {}) {
    if (change) change(to_server);
    server_state = server->receive(std::exchange(to_server, {}), at_server, to_client);
    client_state = client->receive(std::exchange(to_client, {}), at_client, to_server);
  }
  void start_handshake() {
    for (int i = 0; i < 3; ++i) exchange();
  }
  bool open() const { return client_state == TlsState::kOpen && server_state == TlsState::kOpen; }

  std::unique_ptr<TlsSession> client;
  std::unique_ptr<TlsSession> server;
  TlsState client_state = TlsState::kHandshaking;
  TlsState server_state = TlsState::kHandshaking;
  std::string to_server;
  std::string to_client;
  std::string at_server;
  std::string at_client;
};

TEST(Tls, SameTokenOpensAndCarriesBytes) {
  const auto agent = keys();
  const auto coordinator = keys();
  Pair pair(*agent, *coordinator);
  pair.start_handshake();
  ASSERT_TRUE(pair.open());
  EXPECT_EQ(pair.server->peer().protocol_version, 1);
  EXPECT_EQ(pair.server->peer().run, agent->run());
  const std::string large(100000, 'x');
  pair.client->send(large, pair.to_server);
  EXPECT_EQ(pair.to_server.find("xxxxxxxx"), std::string::npos);
  pair.server->send("answer", pair.to_client);
  pair.exchange();
  EXPECT_EQ(pair.at_server, large);
  EXPECT_EQ(pair.at_client, "answer");
  pair.client->send_close_notify(pair.to_server);
  pair.exchange();
  EXPECT_EQ(pair.server_state, TlsState::kClosed);
}

struct Mismatch {
  const char* token;
  const char* run_id;
  std::uint8_t version;
  PeerFault failure;
};

class Mismatches : public testing::TestWithParam<Mismatch> {};

TEST_P(Mismatches, AreReportedOnBothEnds) {
  const auto outsider = keys(GetParam().token, GetParam().run_id, GetParam().version);
  const auto coordinator = keys();
  Pair pair(*outsider, *coordinator);
  pair.start_handshake();
  EXPECT_EQ(pair.client_state, TlsState::kFailed);
  EXPECT_EQ(pair.server_state, TlsState::kFailed);
  EXPECT_EQ(pair.client->failure(), GetParam().failure);
  EXPECT_EQ(pair.server->failure(), GetParam().failure);
  EXPECT_EQ(pair.server->peer().protocol_version, GetParam().version);
  if (GetParam().failure == PeerFault::kWrongVersion) {
    EXPECT_EQ(pair.client->peer().protocol_version, 1);
  }
  if (GetParam().failure == PeerFault::kWrongRunId) {
    EXPECT_EQ(pair.server->peer().run, outsider->run());
    EXPECT_EQ(pair.server->peer().run, tls_module().digest_of(GetParam().run_id));
  }
}

INSTANTIATE_TEST_SUITE_P(Tls, Mismatches,
                         testing::Values(Mismatch{"another", "job", 1, PeerFault::kWrongToken},
                                         Mismatch{kTlsToken.data(), "other", 1, PeerFault::kWrongRunId},
                                         Mismatch{kTlsToken.data(), "job", kMaxProtocolVersion, PeerFault::kWrongVersion},
                                         // If both the token and the run id are wrong, the error must name the run id, because
                                         // a correct token alone would not help the user.
                                         Mismatch{"another", "other", 1, PeerFault::kWrongRunId}));

TEST(Tls, ChangedBytesNeverOpenTheServer) {
  const auto agent = keys();
  const auto coordinator = keys();
  std::size_t hello_size = 0;
  {
    Pair pair(*agent, *coordinator);
    hello_size = pair.to_server.size();
  }
  // Skips the record header, which contains only a type, a version and a size.
  for (std::size_t at = 5; at < hello_size; ++at) {
    Pair pair(*agent, *coordinator);
    pair.exchange([&](std::string& bytes) { bytes[at] = static_cast<char>(bytes[at] ^ 1); });
    pair.exchange();
    pair.exchange();
    EXPECT_NE(pair.server_state, TlsState::kOpen) << "byte " << at << " of the hello";
  }
}

TEST(Tls, ChangedRecordDeliversNothing) {
  const auto agent = keys();
  const auto coordinator = keys();
  Pair pair(*agent, *coordinator);
  pair.start_handshake();
  ASSERT_TRUE(pair.open());
  pair.client->send("stop", pair.to_server);
  pair.exchange([](std::string& bytes) { bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x10); });
  EXPECT_EQ(pair.server->failure(), PeerFault::kBroken);
  EXPECT_EQ(pair.at_server, "");
}

TEST(Tls, LostRecordBreaksTheSession) {
  const auto agent = keys();
  const auto coordinator = keys();
  Pair pair(*agent, *coordinator);
  pair.start_handshake();
  pair.client->send("first", pair.to_server);
  pair.to_server.clear();
  pair.client->send("second", pair.to_server);
  pair.exchange();
  EXPECT_EQ(pair.server->failure(), PeerFault::kBroken);
  EXPECT_EQ(pair.at_server, "");
}

TEST(Tls, ClearTextIsDetected) {
  const auto coordinator = keys();
  std::string plaintext;
  std::string answer;
  const auto server = coordinator->open(TlsRole::kServer);
  EXPECT_EQ(server->receive("GET / HTTP/1.1\r\n\r\n", plaintext, answer), TlsState::kFailed);
  EXPECT_EQ(server->failure(), PeerFault::kNotTls);
  EXPECT_EQ(answer, "");
  const auto agent = keys();
  const auto client = agent->open(TlsRole::kClient);
  client->start(answer);
  EXPECT_EQ(client->receive("HTTP/1.1 400 Bad Request\r\n\r\n", plaintext, answer), TlsState::kFailed);
  EXPECT_EQ(client->failure(), PeerFault::kNotTls);
}

TEST(Tls, InvalidProtocolVersionsAreRefusedLocally) {
  EXPECT_THROW(keys(kTlsToken, "job", 0), InternalError);
  EXPECT_THROW(keys(kTlsToken, "job", kMaxProtocolVersion + 1), InternalError);
}

// Simulates an attacker who can use all functions of OpenSSL but does not have the token.
struct ForeignPeer {
  explicit ForeignPeer(const SSL_METHOD* method) : context(SSL_CTX_new(method)) {}
  ~ForeignPeer() {
    SSL_free(ssl);
    SSL_CTX_free(context);
  }
  ForeignPeer(const ForeignPeer&) = delete;
  ForeignPeer& operator=(const ForeignPeer&) = delete;

  void begin() {
    ssl = SSL_new(context);
    in = BIO_new(BIO_s_mem());
    out = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl, in, out);
  }
  std::string step(std::string_view received) {
    BIO_write(in, received.data(), static_cast<int>(received.size()));
    result = SSL_do_handshake(ssl);
    std::string sent(1 << 16, '\0');
    const int count = BIO_read(out, sent.data(), static_cast<int>(sent.size()));
    sent.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return sent;
  }

  SSL_CTX* context;
  SSL* ssl = nullptr;
  BIO* in = nullptr;
  BIO* out = nullptr;
  int result = 0;
};

void give_certificate(SSL_CTX* context) {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_sign(certificate, key, EVP_sha256());
  ASSERT_EQ(SSL_CTX_use_certificate(context, certificate), 1);
  ASSERT_EQ(SSL_CTX_use_PrivateKey(context, key), 1);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

TEST(Tls, AServerWithACertificateInsteadOfTheKeyIsRefused) {
  ForeignPeer server(TLS_server_method());
  give_certificate(server.context);
  server.begin();
  SSL_set_accept_state(server.ssl);
  const auto agent = keys();
  const auto client = agent->open(TlsRole::kClient);
  std::string to_server;
  std::string plaintext;
  client->start(to_server);
  TlsState state = TlsState::kHandshaking;
  for (int i = 0; i < 4 && state == TlsState::kHandshaking; ++i) {
    const std::string to_client = server.step(std::exchange(to_server, {}));
    state = client->receive(to_client, plaintext, to_server);
  }
  EXPECT_EQ(state, TlsState::kFailed);
  EXPECT_EQ(client->failure(), PeerFault::kNoKey);
}

PeerFault failure_at_coordinator(ForeignPeer& client) {
  SSL_set_connect_state(client.ssl);
  const auto coordinator = keys();
  const auto server = coordinator->open(TlsRole::kServer);
  std::string plaintext;
  std::string to_client;
  TlsState state = TlsState::kHandshaking;
  for (int i = 0; i < 4 && state == TlsState::kHandshaking; ++i) {
    const std::string to_server = client.step(std::exchange(to_client, {}));
    state = server->receive(to_server, plaintext, to_client);
  }
  EXPECT_EQ(state, TlsState::kFailed);
  return server->failure();
}

TEST(Tls, AClientWithoutAKeyIsRefused) {
  ForeignPeer client(TLS_client_method());
  client.begin();
  EXPECT_EQ(failure_at_coordinator(client), PeerFault::kNoKey);
}

TEST(Tls, OlderVersionsAreRefused) {
  ForeignPeer client(TLS_client_method());
  SSL_CTX_set_max_proto_version(client.context, TLS1_2_VERSION);
  client.begin();
  EXPECT_EQ(failure_at_coordinator(client), PeerFault::kNoKey);
}

}  // namespace
}  // namespace ddprun::test
