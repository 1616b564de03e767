// The job's token, a secret that all nodes of a job share. This file checks the strength of a token and creates new tokens.
// token_file.hpp stores tokens in files, and token_search.hpp finds the token of a job.
//
// In the TLS handshake, both nodes prove that they have the token, but do not send it (rendezvous/identity/tls.hpp,
// openssl/tls_session.cpp). Messages, logs and arguments never contain a token: an error message names only its source.
#pragma once

#include <string>
#include <string_view>

#include "common/base/error.hpp"

namespace ddprun {

// Thrown if a token is missing, weak, or readable by other users. The process then exits with code 81.
class TokenError : public Error {
 public:
  explicit TokenError(const std::string& message) : Error(ExitCode::kTokenRefused, message) {}
};

// Holds the text of a token. The destructor wipes the text from memory.
class Token {
 public:
  explicit Token(std::string text) : text_(std::move(text)) {}
  ~Token() { wipe(); }
  Token(Token&& other) noexcept;
  Token& operator=(Token&& other) noexcept;
  Token(const Token&) = delete;
  Token& operator=(const Token&) = delete;

  std::string_view text() const { return text_; }

 private:
  void wipe() noexcept;
  std::string text_;
};

// Creates a token: 256 random bits as 64 hexadecimal digits. Throws InternalError if getrandom(2) fails.
Token new_token();

// Returns the token in `text` without surrounding white space. Throws TokenError if the text cannot contain 128 random bits.
// The error message contains `source`, and never the token.
Token check_token(std::string text, const std::string& source);

}  // namespace ddprun
