// A connection between two agents: whole frames in both directions, encrypted and authenticated, over one TCP socket. The
// listener and Transport::connect() create it and perform the handshake; the agent gets it when it is open. It never blocks and
// holds no buffers while idle. One thread; handlers are called from the event loop, never from within a call of send(),
// finish() or close().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/identity/tls.hpp"
#include "rendezvous/transport/fault.hpp"
#include "rendezvous/transport/frame.hpp"
#include "rendezvous/transport/shared.hpp"

namespace ddprun {

struct Closed {
  enum class Cause {
    kGoodbye,  // the peer closed it in an orderly way, or this side called finish()
    kLost,     // the connection was reset, timed out, or ended without an orderly close
    kFault,    // the peer violated the protocol; logged
  };
  Cause cause = Cause::kLost;
  std::optional<PeerFault> fault;
  std::string why;     // for messages
  bool reset = false;  // kLost: true if the network broke it; false if the other end did, for example because its process was
                       // killed
};

// Sends each write immediately (TCP_NODELAY), and detects a dead peer. On Linux an accepted socket inherits these options from
// the listening one, so a stranger costs no system call for them.
void set_socket_options(int fd, const TransportLimits& limits);

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Endpoint = boost::asio::ip::tcp::endpoint;

  struct Handlers {
    std::function<void(std::string_view frame)> on_frame;  // in order; the view is valid only during the call
    std::function<void(const Closed&)> on_closed;          // called once, as the last handler; not after close()
  };

  // Nothing is read before this call. Frames that have already arrived are passed on from the event loop.
  void start(Handlers handlers);
  // Queues a frame and sends as much as the socket takes now. A call from within on_frame sends when on_frame returns, so that
  // several answers are sent together. Throws InternalError for a frame over the limit. Has no effect after the connection has
  // closed.
  void send(std::string_view frame);
  // Sets the limit for frames that begin later; before that it is TransportLimits::frame_bytes. Use it for a peer that was not
  // welcomed yet.
  void set_frame_limit(std::size_t bytes) { frames_.set_limit(bytes); }
  // Sets how long the peer may leave data unacknowledged, as in TransportLimits::give_up_after.
  void give_up_after(std::chrono::milliseconds silence);
  // Sends the queued data, closes in an orderly way, then ends. Drops everything that still arrives.
  void finish();
  // Ends immediately.
  void close();

  bool is_open() const { return stage_ == Stage::kOpen; }
  const Endpoint& local() const { return local_; }  // known after the handshake
  const Endpoint& remote() const { return remote_; }
  const TlsPeer& peer() const { return peer_; }  // on the side that was dialed: the member's identity
  std::size_t queued_bytes() const { return out_.size() - sent_; }

  // ---- For the listener and the connector ----

  struct Handshake {
    enum class End { kOpen, kFault, kLost };
    End end = End::kLost;
    PeerFault fault = PeerFault::kNoKey;
    std::uint8_t peer_version = 0;
    std::string detail;
  };
  struct HandshakeHandlers {
    std::function<void()> on_started;  // a server: the hello proved the key
    // Called once, as the last handler. The connection closes when this returns, unless the result is kOpen.
    std::function<void(const Handshake&)> on_done;
  };
  // Takes a connected, non-blocking socket with set_socket_options().
  Connection(std::shared_ptr<TransportShared> shared, boost::asio::ip::tcp::socket socket, const Endpoint& remote,
             TlsRole role);
  // `received` are bytes that another process has already read from this socket (handover.hpp). If they suffice, a handler is
  // called immediately.
  void shake_hands(HandshakeHandlers handlers, std::string_view received = {});
  // During on_done with kWrongRunId or kNotTls: the socket, for the process that takes over the connection. Nothing has been
  // sent to the peer yet.
  int native_handle() { return socket_.native_handle(); }
  const std::string& hello() const { return hello_; }
  const ShortRunDigest& refused_run() const { return tls_->peer().run; }
  // During on_done: another process has a duplicate of the socket and serves the peer. Closes this one without sending
  // anything.
  void give_away();

 private:
  enum class Stage { kHandshake, kOpen, kFinishing, kClosed };
  enum class More { kYes, kNo };

  void wait_for_input();
  void read_available();
  More take(std::string_view bytes);
  More take_handshake(TlsState state);
  More take_records(TlsState state);
  void hand_out_frames();
  void flush();
  int write_out();
  void wait_for_output();
  enum class By { kNetwork, kOtherEnd };
  void lost(const std::string& why, By by = By::kNetwork);
  void fault(PeerFault fault);
  void end_handshake(const Handshake& result);
  void end(Closed closed);
  void shut();

  std::shared_ptr<TransportShared> shared_;
  boost::asio::ip::tcp::socket socket_;
  std::unique_ptr<TlsSession> tls_;
  FrameReader frames_;
  std::string out_;
  std::size_t sent_ = 0;  // of out_
  std::size_t received_ = 0;
  std::string hello_;
  Handlers handlers_;
  HandshakeHandlers handshake_;
  std::unique_ptr<boost::asio::steady_timer> farewell_;
  Endpoint local_;
  Endpoint remote_;
  TlsPeer peer_;
  TlsRole role_;
  Stage stage_ = Stage::kHandshake;
  bool proven_ = false;       // a server: on_started was called
  bool handing_out_ = false;  // frames are being passed on; answers to them are written together afterwards
  bool writing_ = false;
  bool reading_ = false;
};

}  // namespace ddprun
