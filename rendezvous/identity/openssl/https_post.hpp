// Sends a single POST request over HTTPS, with OpenSSL's blocking connections. module.cpp calls https_post(). The server
// proves its identity with a certificate. In the connections between agents, a peer uses a pre-shared key instead
// (tls_session.hpp).
#pragma once

#include "rendezvous/identity/tls.hpp"

namespace ddprun {

// Uses TLS 1.2 or newer. Throws std::runtime_error if the server cannot be reached, or if its certificate is not valid for the
// host.
HttpsAnswer https_post(const HttpsPost& request);

}  // namespace ddprun
