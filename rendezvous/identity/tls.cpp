// Implements the functions of tls.hpp that are linked into ddprun itself: they find libddprun_tls.so and open it.
#include "rendezvous/identity/tls.hpp"

#include <dlfcn.h>

#include <filesystem>

#include "common/base/error.hpp"
#include "rendezvous/identity/random_bytes.hpp"

namespace ddprun {
namespace {

TlsModule& open_module() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::string searched;
  for (const auto& folder : {program, program / ".." / "lib" / "ddprun"}) {
    const auto file = (folder / "libddprun_tls.so").lexically_normal();
    if (!std::filesystem::exists(file, error)) {
      searched += (searched.empty() ? "" : ", ") + file.parent_path().string();
      continue;
    }
    void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      throw InternalError("a job on several machines needs OpenSSL 3, which cannot be loaded: " + std::string(::dlerror()) +
                          ". Install OpenSSL 3; on Debian: apt-get install libssl3");
    }
    const auto entry = reinterpret_cast<TlsModuleEntry*>(::dlsym(library, kTlsModuleEntry));
    TlsModule* const module = entry != nullptr ? entry(kTlsModuleVersion) : nullptr;
    if (module == nullptr) {
      throw InternalError(file.string() + " belongs to another version of ddprun: build or install both together");
    }
    return *module;
  }
  throw InternalError("a job on several machines needs libddprun_tls.so, which is not in " + searched +
                      ": install all of ddprun, including its lib folder");
}

}  // namespace

InstanceId new_instance_id() {
  return random_bytes<std::tuple_size_v<InstanceId>>();
}

TlsModule& tls_module() {
  static TlsModule& module = open_module();
  return module;
}

std::unique_ptr<TlsKeys> derive_keys(const TlsCredentials& credentials) {
  if (credentials.protocol_version == 0 || credentials.protocol_version > kMaxProtocolVersion) {
    throw InternalError("protocol version " + std::to_string(credentials.protocol_version) + " is not between 1 and " +
                        std::to_string(kMaxProtocolVersion));
  }
  auto keys = tls_module().derive(credentials);
  if (!keys) {
    throw InternalError(
        "OpenSSL cannot derive the job's keys: TLS 1.3 with TLS_AES_128_GCM_SHA256, HKDF and X25519 or P-256 are required");
  }
  return keys;
}

}  // namespace ddprun
