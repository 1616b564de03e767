#include "rendezvous/identity/openssl/https_post.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <string>

#include "rendezvous/identity/openssl/keys.hpp"

namespace ddprun {
namespace {

using BioPointer = std::unique_ptr<BIO, OpensslFree<BIO_free_all>>;

constexpr std::size_t kMaxAnswerBytes = 64 << 10;

[[noreturn]] void fail(const std::string& what) {
  std::array<char, 256> text{};
  const unsigned long error = ERR_peek_last_error();
  if (error == 0) throw std::runtime_error(what);
  ERR_error_string_n(error, text.data(), text.size());
  throw std::runtime_error(what + ": " + text.data());
}

SslContextPointer context_of(const HttpsPost& request) {
  SslContextPointer context(SSL_CTX_new(TLS_client_method()));
  if (!context || SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1) fail("OpenSSL cannot create a context");
  if (SSL_CTX_load_verify_file(context.get(), request.ca_file.c_str()) != 1) {
    fail("cannot read the certificates in " + request.ca_file);
  }
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(context.get(), SSL_MODE_AUTO_RETRY);
  return context;
}

// Requires a server certificate that is valid for this host.
void require_host(SSL* ssl, const std::string& host) {
  const bool is_address = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) == 1;
  if (is_address) return;
  ERR_clear_error();  // removes the error that OpenSSL stored when it tried to parse the name as an address
  if (SSL_set1_host(ssl, host.c_str()) != 1 || SSL_set_tlsext_host_name(ssl, host.c_str()) != 1) fail("invalid host " + host);
}

std::string header_host(const HttpsPost& request) {
  const bool is_v6 = request.host.find(':') != std::string::npos;
  return (is_v6 ? "[" + request.host + "]" : request.host) + ":" + request.port;
}

// Parses an HTTP answer, which starts with a line such as "HTTP/1.1 403 Forbidden". `problem` in the result is the first line
// of the answer's body.
HttpsAnswer parse_answer(const std::string& text) {
  if (!text.starts_with("HTTP/1.") || text.size() < 12) return {0, "the answer is not HTTP"};
  HttpsAnswer answer;
  answer.status = std::atoi(text.c_str() + 9);
  const std::size_t body = text.find("\r\n\r\n");
  if (body == std::string::npos) return answer;
  answer.problem = text.substr(body + 4, text.find_first_of("\r\n", body + 4) - (body + 4));
  return answer;
}

}  // namespace

HttpsAnswer https_post(const HttpsPost& request) {
  const SslContextPointer context = context_of(request);
  const BioPointer connection(BIO_new_ssl_connect(context.get()));
  SSL* ssl = nullptr;
  if (!connection) fail("OpenSSL cannot create a connection");
  BIO_get_ssl(connection.get(), &ssl);
  require_host(ssl, request.host);
  BIO_set_conn_hostname(connection.get(), header_host(request).c_str());
  if (BIO_do_connect(connection.get()) != 1) {  // connects, and performs the TLS handshake
    const long verified = SSL_get_verify_result(ssl);
    if (verified == X509_V_OK) fail("cannot connect to " + header_host(request));
    throw std::runtime_error("the certificate of " + header_host(request) +
                             " is not accepted: " + X509_verify_cert_error_string(verified));
  }
  const std::string text = "POST " + request.path + " HTTP/1.1\r\nHost: " + header_host(request) +
                           "\r\nAuthorization: Bearer " + request.bearer +
                           "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(request.body.size()) +
                           "\r\nConnection: close\r\n\r\n" + request.body;
  for (std::size_t sent = 0; sent < text.size();) {
    const int count = BIO_write(connection.get(), text.data() + sent, static_cast<int>(text.size() - sent));
    if (count <= 0) fail("the connection was closed");
    sent += static_cast<std::size_t>(count);
  }
  std::string answer;
  std::array<char, 4096> part{};
  while (answer.size() < kMaxAnswerBytes) {
    const int count = BIO_read(connection.get(), part.data(), static_cast<int>(part.size()));
    if (count <= 0) break;
    answer.append(part.data(), static_cast<std::size_t>(count));
  }
  if (answer.empty()) fail("the server closed the connection without an answer");
  return parse_answer(answer);
}

}  // namespace ddprun
