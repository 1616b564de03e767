// Implements the only function that libddprun_tls.so exports (rendezvous/identity/tls.hpp). No exception leaves the library.
#include <openssl/ssl.h>

#include <exception>

#include "rendezvous/identity/openssl/https_post.hpp"
#include "rendezvous/identity/openssl/keys.hpp"

namespace ddprun {
namespace {

class OpensslModule final : public TlsModule {
 public:
  std::unique_ptr<TlsKeys> derive(const TlsCredentials& credentials) noexcept override {
    try {
      return std::make_unique<OpensslKeys>(credentials);
    } catch (const std::exception&) {
      return nullptr;
    }
  }
  ShortRunDigest digest_of(std::string_view run_id) noexcept override { return digest_of_run(run_id); }
  HttpsAnswer post(const HttpsPost& request) noexcept override {
    try {
      return https_post(request);
    } catch (const std::exception& error) {
      return {0, error.what()};
    }
  }
};

}  // namespace
}  // namespace ddprun

extern "C" __attribute__((visibility("default"))) ddprun::TlsModule* ddprun_tls_module(int version) {
  if (version != ddprun::kTlsModuleVersion) return nullptr;
  // We do not load the machine's openssl.cnf. The file could weaken our settings, and reading it takes time.
  static const bool ready = OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, nullptr) == 1;
  static ddprun::OpensslModule module;
  return ready ? &module : nullptr;
}
