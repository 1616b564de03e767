// A connection between two agents. It carries whole frames in both directions, encrypted and authenticated, over one TCP
// socket. The listener and Transport::connect() create the object and perform the handshake. The agent gets the object when
// the connection is open. The functions do not block, and an idle connection has no buffers. All calls are on one thread. The
// handlers are called from the event loop, and never during a call of send(), finish() or close().
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/identity/tls.hpp"
#include "rendezvous/transport/frame.hpp"
#include "rendezvous/transport/shared.hpp"

namespace ddprun {

struct Closed {
  enum class Cause {
    kOrderly,  // the peer has closed TLS with close_notify, or this agent has called finish()
    kLost,     // the connection was reset, timed out, or ended without close_notify
    kFault,    // the peer has violated the protocol; the fault is logged
  };
  Cause cause = Cause::kLost;
  std::optional<PeerFault> fault;
  std::string why;  // for messages
  // kLost: true if the network broke the connection; false if the other agent closed it, for example because its process was
  // killed
  bool reset = false;
};

// Sets the options for sending without delay (TCP_NODELAY) and for the detection of a dead peer. On Linux an accepted socket
// inherits the options from the listening socket, so an accepted connection needs no system calls for them.
void set_socket_options(int fd, const TransportLimits& limits);

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Endpoint = boost::asio::ip::tcp::endpoint;

  struct Handlers {
    // called for each frame in the order of arrival; the view is valid only during the call
    std::function<void(std::string_view frame)> on_frame;
    std::function<void(const Closed&)> on_closed;  // called once, as the last handler; not called after close()
  };

  // Starts to read and to call the handlers. Frames that have already arrived are delivered from the event loop.
  void start(Handlers handlers);
  // Queues a frame, and sends as much of the queue as the socket accepts now. If on_frame calls send(), the frame is sent
  // after on_frame has returned, so that several answers are sent together. Throws InternalError for a frame over the limit.
  // The call has no effect on a closed connection.
  void send(std::string_view frame);
  // Sets the limit for frames that start after this call; the default is TransportLimits::frame_bytes. A caller can use it to
  // allow only smaller frames before the peer has joined the job.
  void set_frame_limit(std::size_t bytes) { frames_.set_limit(bytes); }
  // Sets for how long the peer may leave data unacknowledged. After that time, the connection counts as lost
  // (TransportLimits::give_up_after()).
  void give_up_after(std::chrono::milliseconds silence);
  // Sends the queued data and close_notify, and closes the connection after the peer has closed it too. Drops all data that
  // arrives in the meantime.
  void finish();
  // Closes the connection immediately. No handler is called afterwards.
  void close();

  bool is_open() const { return stage_ == Stage::kOpen; }
  const Endpoint& local() const { return local_; }  // valid after the handshake
  const Endpoint& remote() const { return remote_; }
  // the peer's authenticated description; valid only if this agent has accepted the connection
  const TlsPeer& peer() const { return peer_; }
  std::size_t queued_bytes() const { return out_.size() - sent_; }

  // ---- for the listener and the connector ----

  struct Handshake {
    enum class End { kOpen, kFault, kLost };
    End end = End::kLost;
    PeerFault fault = PeerFault::kNoKey;
    std::uint8_t peer_version = 0;
    std::string detail;
  };
  struct HandshakeHandlers {
    std::function<void()> on_started;  // on a server: called when the ClientHello has proved that the peer has the key
    // Called once, as the last handler, with the result of the handshake. Unless the result is kOpen, the connection is closed
    // when on_done returns.
    std::function<void(const Handshake&)> on_done;
  };
  // Takes ownership of `socket`, which must be connected and non-blocking, and on which set_socket_options() was called.
  Connection(std::shared_ptr<TransportShared> shared, boost::asio::ip::tcp::socket socket, const Endpoint& remote,
             TlsRole role);
  // `received` contains bytes that another process has already read from this socket (handover.hpp). A handler may be called
  // before this function returns, because these bytes may be enough for the handshake.
  void start_handshake(HandshakeHandlers handlers, std::string_view received = {});
  // Returns the descriptor of the socket, for another process that will serve the peer. Call this only during on_done with
  // kWrongRunId or kNotTls, when no byte has been sent to the peer yet.
  int native_handle() { return socket_.native_handle(); }
  const std::string& hello() const { return hello_; }
  const ShortRunDigest& refused_run() const { return tls_->peer().run; }
  // Call this during on_done if another process has a duplicate of the socket and serves the peer. The call closes this socket
  // without sending a byte.
  void hand_off();

 private:
  enum class Stage { kHandshake, kOpen, kFinishing, kClosed };
  enum class More { kYes, kNo };

  void wait_for_input();
  void read_available();
  More take(std::string_view bytes);
  More take_handshake(TlsState state);
  More take_records(TlsState state);
  void deliver_frames();
  void flush();
  int write_out();
  void wait_for_output();
  enum class LostBy { kNetwork, kOtherEnd };
  void lost(const std::string& why, LostBy by = LostBy::kNetwork);
  void fault(PeerFault fault);
  void end_handshake(const Handshake& result);
  void end(Closed closed);
  void shut();

  std::shared_ptr<TransportShared> shared_;
  boost::asio::ip::tcp::socket socket_;
  std::unique_ptr<TlsSession> tls_;
  FrameReader frames_;
  std::string out_;
  std::size_t sent_ = 0;  // number of bytes of out_ that were sent
  std::size_t received_ = 0;
  std::string hello_;
  Handlers handlers_;
  HandshakeHandlers handshake_;
  std::unique_ptr<boost::asio::steady_timer> linger_timer_;
  Endpoint local_;
  Endpoint remote_;
  TlsPeer peer_;
  TlsRole role_;
  Stage stage_ = Stage::kHandshake;
  bool proven_ = false;      // on a server: true if on_started was called
  bool delivering_ = false;  // true while frames are delivered; answers to them are sent together afterwards
  bool writing_ = false;
  bool reading_ = false;
};

}  // namespace ddprun
