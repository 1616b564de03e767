// TLS 1.3 with a key made from the job's token, without sockets. Bytes of the network go in; bytes for the network and
// plaintext come out. It is implemented in a separate module, libddprun_tls.so. tls.cpp opens it only for a job with a network,
// since linking OpenSSL would cost every start 6.5 ms and 8 MB. Its only caller is rendezvous/transport/transport.hpp;
// docs/security.md lists the attacks that it prevents. Only tls_module() and derive_keys() throw; both are outside the module.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace ddprun {

// The first 16 bytes of the SHA-256 of the run id. A peer without the token can read them, and so compare the job with a known
// run id.
using ShortRunDigest = std::array<std::uint8_t, 16>;
// Random, and new for each process of an agent. A peer that shows us our own id reflects our own bytes (the Selfie attack).
using InstanceId = std::array<std::uint8_t, 16>;

InstanceId new_instance_id();

inline constexpr std::uint8_t kMaxProtocolVersion = 30;  // an alert must be able to hold it (openssl/session.cpp)

struct TlsCredentials {
  std::string_view token;
  std::string_view run_id;
  std::uint8_t protocol_version = 1;  // 1 to kMaxProtocolVersion
  InstanceId instance{};
};

enum class TlsRole { kClient, kServer };

enum class TlsState { kHandshaking, kOpen, kClosed, kFailed };  // kClosed: the peer has closed TLS (close_notify)

enum class TlsFailure {
  kNone,
  kNotTls,        // the peer does not speak TLS
  kNoKey,         // the peer speaks TLS, but offered no key of ddprun
  kWrongToken,    // the peer has the same job and version, but another token
  kWrongRunId,    // the peer belongs to another job
  kWrongVersion,  // the peer has another protocol version (in TlsPeer)
  kReflected,     // our own hello came back, or we dialed ourselves
  kBroken,        // a record is invalid: bytes were lost, changed or replayed
};

// The peer's description of itself. A server gets all fields; they are proven in state kOpen. A client gets only the version,
// and only if it was refused because of it.
struct TlsPeer {
  std::uint8_t protocol_version = 0;
  ShortRunDigest run{};
  InstanceId instance{};
};

// One end of one connection. Each call appends to `to_peer` and replaces nothing. After a failure `to_peer` may hold an alert
// with the reason: send it to the peer.
class TlsSession {
 public:
  virtual ~TlsSession() = default;
  // Writes the first bytes of a client's handshake. A server writes nothing: it waits for the client.
  virtual TlsState start(std::string& to_peer) noexcept = 0;
  virtual TlsState receive(std::string_view from_peer, std::string& plaintext, std::string& to_peer) noexcept = 0;
  // Call it only in state kOpen.
  virtual TlsState send(std::string_view plaintext, std::string& to_peer) noexcept = 0;
  virtual void say_goodbye(std::string& to_peer) noexcept = 0;

  virtual TlsFailure failure() const noexcept = 0;
  virtual const TlsPeer& peer() const noexcept = 0;
  virtual const std::string& detail() const noexcept = 0;  // OpenSSL's text for a failure
};

// The keys of one job. They keep no copy of the token, are wiped by the destructor and must outlive their sessions.
class TlsKeys {
 public:
  virtual ~TlsKeys() = default;
  virtual std::unique_ptr<TlsSession> open(TlsRole role) noexcept = 0;  // null: out of memory
  virtual const ShortRunDigest& run() const noexcept = 0;
};

class TlsModule {
 public:
  virtual ~TlsModule() = default;
  virtual std::unique_ptr<TlsKeys> derive(const TlsCredentials& credentials) noexcept = 0;  // null: OpenSSL refused
  virtual ShortRunDigest digest_of(std::string_view run_id) noexcept = 0;
};

inline constexpr int kTlsModuleVersion = 1;
inline constexpr const char* kTlsModuleEntry = "ddprun_tls_module";
// The type of the one symbol that the module exports. It returns null when `version` isn't the module's own.
using TlsModuleEntry = TlsModule*(int version);

// Opens the module at the first call. Throws InternalError if the module is missing or can't be loaded.
TlsModule& tls_module();
// Throws InternalError when OpenSSL can't make keys.
std::unique_ptr<TlsKeys> derive_keys(const TlsCredentials& credentials);

}  // namespace ddprun
