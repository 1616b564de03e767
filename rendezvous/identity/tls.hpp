// TLS 1.3 with a pre-shared key that is derived from the job's token. These classes have no sockets: their input is bytes from
// the network, and their output is plaintext and bytes for the network. rendezvous/transport uses them. docs/security.md lists
// the attacks that TLS prevents.
//
// The implementation is in a separate library, libddprun_tls.so. Only a multi-node job opens the library (tls.cpp). If ddprun
// were linked with OpenSSL, each start of ddprun would take 6.5 ms and 8 MB more. Only tls_module() and derive_keys() throw
// exceptions. Both functions are outside the library.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace ddprun {

// The first 16 bytes of the SHA-256 of the run id. They are visible on the network, so an observer without the token can check
// a guess of the run id.
using ShortRunDigest = std::array<std::uint8_t, 16>;
// A random id of this process. If a peer presents our own id, it only sends our own bytes back to us (the Selfie attack), so
// we refuse the connection.
using InstanceId = std::array<std::uint8_t, 16>;

InstanceId new_instance_id();

// at most 30, so that a TLS alert number can encode the version (openssl/tls_session.cpp)
inline constexpr std::uint8_t kMaxProtocolVersion = 30;

struct TlsCredentials {
  std::string_view token;
  std::string_view run_id;
  std::uint8_t protocol_version = 1;  // 1 to kMaxProtocolVersion
  InstanceId instance{};
};

enum class TlsRole { kClient, kServer };

enum class TlsState { kHandshaking, kOpen, kClosed, kFailed };  // kClosed: the peer has ended the connection with close_notify

// Reasons why a connection is refused or closed. The TLS code detects the faults from the first to kBroken, and the transport
// detects the others (rendezvous/transport/fault.hpp).
enum class PeerFault {
  kNone,
  kNotTls,         // the peer does not use TLS
  kNoKey,          // the peer uses TLS, but did not offer a pre-shared key of ddprun
  kWrongToken,     // the peer has the same run id and version, but a different token
  kWrongRunId,     // the peer has a different run id, so it belongs to another job
  kWrongVersion,   // the peer has a different protocol version (TlsPeer::protocol_version)
  kReflected,      // the peer has sent our own bytes back: a reflection attack, or this process has dialed itself
  kBroken,         // a record is invalid: bytes were lost, changed or replayed
  kSilent,         // the handshake was not completed in time
  kTooManyBytes,   // the peer sent too many bytes before it had proved that it has the token
  kCrowdedOut,     // an idle connection was closed so that another connection can be accepted
  kNoDescriptors,  // closed immediately after accept, because no file descriptor was free
  kFrameTooLarge,  // a member (a node that has proved the token) sent a frame over the size limit
  kSlowReader,     // a member reads the data that we send to it too slowly
  kCount,
};

// The peer's data about itself. A server gets all fields, and in state kOpen they are authenticated. A client gets only the
// version, and only if the server refused the client because of the version.
struct TlsPeer {
  std::uint8_t protocol_version = 0;
  ShortRunDigest run{};
  InstanceId instance{};
};

// One end of a TLS connection. Each call appends to `to_peer` the bytes that the caller must send. After a failure these bytes
// may be a TLS alert with the reason.
class TlsSession {
 public:
  virtual ~TlsSession() = default;
  // Starts the handshake. On a client, this appends the first bytes to `to_peer`. A server first waits for the client's bytes.
  virtual TlsState start(std::string& to_peer) noexcept = 0;
  virtual TlsState receive(std::string_view from_peer, std::string& plaintext, std::string& to_peer) noexcept = 0;
  // Encrypts `plaintext` and appends the result to `to_peer`. Allowed only in state kOpen.
  virtual TlsState send(std::string_view plaintext, std::string& to_peer) noexcept = 0;
  virtual void send_close_notify(std::string& to_peer) noexcept = 0;

  virtual PeerFault failure() const noexcept = 0;
  virtual const TlsPeer& peer() const noexcept = 0;
  virtual const std::string& detail() const noexcept = 0;  // OpenSSL's error text for the failure
};

// The TLS keys of one job. A TlsKeys object keeps no copy of the token, and its destructor wipes the keys. It must outlive the
// sessions that it has opened.
class TlsKeys {
 public:
  virtual ~TlsKeys() = default;
  virtual std::unique_ptr<TlsSession> open(TlsRole role) noexcept = 0;  // returns nullptr if memory is exhausted
  virtual const ShortRunDigest& run() const noexcept = 0;
};

// A POST request to a server. The server's certificate must be signed by the given certificate authority. The call blocks, so
// only a process that does nothing else makes it (launcher/scheduler_status/kubeflow_post.hpp).
struct HttpsPost {
  std::string host;  // name or address; the certificate must be valid for it
  std::string port;
  std::string path;
  std::string ca_file;  // certificates in PEM format
  std::string bearer;   // the token of the Authorization header
  std::string body;     // JSON
};

struct HttpsAnswer {
  int status = 0;       // 0 if the server has not answered
  std::string problem;  // the reason why the server has not answered, or the first line of the text in its answer
};

class TlsModule {
 public:
  virtual ~TlsModule() = default;
  // returns nullptr if OpenSSL reports an error
  virtual std::unique_ptr<TlsKeys> derive(const TlsCredentials& credentials) noexcept = 0;
  virtual ShortRunDigest digest_of(std::string_view run_id) noexcept = 0;
  // Blocks until the server has answered or the connection has failed. The caller limits the time by ending the process.
  virtual HttpsAnswer post(const HttpsPost& request) noexcept = 0;
};

inline constexpr int kTlsModuleVersion = 2;
inline constexpr const char* kTlsModuleEntry = "ddprun_tls_module";
// The type of the only function that the library exports. It returns nullptr if `version` is not the version of the library.
using TlsModuleEntry = TlsModule*(int version);

// Returns the TLS library. The first call opens it. Throws InternalError if the library is missing or can't be loaded.
TlsModule& tls_module();
// Derives the TLS keys of a job from its token. Throws InternalError if OpenSSL reports an error.
std::unique_ptr<TlsKeys> derive_keys(const TlsCredentials& credentials);

}  // namespace ddprun
