// Implementation of tls.hpp outside the module: it finds the module and opens it.
#include "rendezvous/identity/tls.hpp"

#include <dlfcn.h>
#include <sys/random.h>

#include <cerrno>
#include <filesystem>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

TlsModule& open_module() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::string looked_at;
  for (const auto& folder : {program, program / ".." / "lib" / "ddprun"}) {
    const auto file = (folder / "libddprun_tls.so").lexically_normal();
    if (!std::filesystem::exists(file, error)) {
      looked_at += (looked_at.empty() ? "" : ", ") + file.parent_path().string();
      continue;
    }
    void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      throw InternalError("a job on several machines needs OpenSSL 3, and its module cannot be loaded: " +
                          std::string(::dlerror()) + ". On Debian: apt-get install libssl3");
    }
    const auto entry = reinterpret_cast<TlsModuleEntry*>(::dlsym(library, kTlsModuleEntry));
    TlsModule* const module = entry != nullptr ? entry(kTlsModuleVersion) : nullptr;
    if (module == nullptr) {
      throw InternalError(file.string() + " is of another version of ddprun: build or install both together");
    }
    return *module;
  }
  throw InternalError("a job on several machines needs libddprun_tls.so, which is not in " + looked_at +
                      ": install ddprun as a whole, its lib folder included");
}

}  // namespace

InstanceId new_instance_id() {
  InstanceId id{};
  std::size_t filled = 0;
  while (filled < id.size()) {
    const ssize_t count = ::getrandom(id.data() + filled, id.size() - filled, 0);
    if (count < 0 && errno != EINTR) throw InternalError("the kernel gives no random numbers (getrandom)");
    if (count > 0) filled += static_cast<std::size_t>(count);
  }
  return id;
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
        "OpenSSL cannot make the job's keys: TLS 1.3 with TLS_AES_128_GCM_SHA256, HKDF and X25519 or P-256 are needed");
  }
  return keys;
}

}  // namespace ddprun
