// Implementation of the worker's end of the worker channel. One thread reads. A thread that sends writes its whole frame
// directly to the socket, under a mutex. Frames are not queued for a writer thread, so no frame is lost when the process exits.
// When the agent closes the channel, all waiting requests throw.
#include "trainer/surroundings/agent_channel.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <future>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <unordered_map>
#include <utility>

#include "common/channel/codec.hpp"

namespace ddprun::trainer {
namespace {

constexpr const char* kSuperseded = "the process group is being rebuilt: a peer was lost";
constexpr const char* kGone = "the ddprun agent closed the worker channel";

}  // namespace

struct AgentChannel::Impl {
  Impl(int descriptor, Handler handler, std::function<void()> gone)
      : fd(descriptor), on_message(std::move(handler)), on_gone(std::move(gone)) {
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  }

  bool write_frame(const std::string& frame) noexcept {
    const std::lock_guard lock(write_mutex);
    std::size_t done = 0;
    while (done < frame.size()) {
      const ssize_t written = ::send(fd, frame.data() + done, frame.size() - done, MSG_NOSIGNAL);
      if (written > 0) {
        done += static_cast<std::size_t>(written);
      } else if (errno != EINTR) {
        // The receiver may have received a part of the frame, so no further frame can be sent on this stream.
        ::shutdown(fd, SHUT_RDWR);
        return false;
      }
    }
    return true;
  }

  void read_all() noexcept {
    try {
      channel::Decoder decoder;
      std::array<std::byte, 65536> buffer;
      while (true) {
        const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        decoder.feed(std::span(buffer.data(), static_cast<std::size_t>(got)));
        while (auto message = decoder.next_from_agent()) dispatch(std::move(*message));
      }
      fail_requests(kGone);
    } catch (const std::exception& error) {
      ::shutdown(fd, SHUT_RDWR);
      fail_requests(std::string("the worker channel to the ddprun agent failed: ") + error.what());
    }
  }

  void dispatch(channel::FromAgent message) {
    auto* reply = std::get_if<channel::StoreReply>(&message);
    if (!reply) {
      // Requests are accepted again before on_message() is called, because on_message() wakes the threads that send requests
      // to the new group's store.
      if (std::holds_alternative<channel::Regroup>(message)) accept_requests();
      if (on_message) on_message(message);
      // Old store requests fail only after on_message(), so that the message Regroup is recorded before a store request
      // throws.
      if (const auto* regroup = std::get_if<channel::Regroup>(&message)) drop_requests_before(regroup->generation);
      if (std::holds_alternative<channel::Hold>(message)) drop_all_requests();
      return;
    }
    std::promise<channel::StoreReply> waiting;
    {
      const std::lock_guard lock(requests_mutex);
      const auto found = requests.find(reply->id);
      if (found == requests.end()) return;
      waiting = std::move(found->second.answer);
      requests.erase(found);
    }
    waiting.set_value(std::move(*reply));
  }

  // Fails the store requests of earlier process groups. No rank of an earlier group sets keys any more, so a request that waits
  // for such a key would never return.
  void drop_requests_before(int generation) {
    const std::lock_guard lock(requests_mutex);
    newest_generation = std::max(newest_generation, generation);
    for (auto entry = requests.begin(); entry != requests.end();) {
      if (entry->second.generation >= newest_generation) {
        ++entry;
        continue;
      }
      entry->second.answer.set_exception(std::make_exception_ptr(std::runtime_error(kSuperseded)));
      entry = requests.erase(entry);
    }
  }

  void accept_requests() {
    const std::lock_guard lock(requests_mutex);
    held = false;
  }

  // Fails all requests, and rejects new ones until the next Regroup message. In a multi-node job each round has a new, empty
  // store, which would never answer the requests of the previous round.
  void drop_all_requests() {
    const std::lock_guard lock(requests_mutex);
    held = true;
    for (auto& [id, request] : std::exchange(requests, {})) {
      request.answer.set_exception(std::make_exception_ptr(std::runtime_error(kSuperseded)));
    }
  }

  void fail_requests(const std::string& reason) {
    std::unordered_map<std::uint64_t, Request> orphans;
    {
      const std::lock_guard lock(requests_mutex);
      connected = false;
      lost_because = reason;
      orphans.swap(requests);
    }
    for (auto& [id, request] : orphans) request.answer.set_exception(std::make_exception_ptr(std::runtime_error(reason)));
    if (on_gone) on_gone();
  }

  const int fd;
  const Handler on_message;
  const std::function<void()> on_gone;
  std::mutex write_mutex;
  std::mutex requests_mutex;
  struct Request {
    int generation = 0;
    std::promise<channel::StoreReply> answer;
  };
  std::unordered_map<std::uint64_t, Request> requests;
  int newest_generation = 0;
  bool held = false;  // true from Hold to Regroup: no store exists, so requests are rejected
  std::uint64_t last_id = 0;
  std::string lost_because = kGone;
  std::atomic<bool> connected = true;
  std::thread reader;
};

AgentChannel::AgentChannel(int fd, channel::Hello hello, Handler on_message, std::function<void()> on_gone)
    : impl_(std::make_unique<Impl>(fd, std::move(on_message), std::move(on_gone))) {
  send(hello);
  impl_->reader = std::thread([impl = impl_.get()] { impl->read_all(); });
}

AgentChannel::~AgentChannel() {
  ::shutdown(impl_->fd, SHUT_RDWR);  // wakes the reader; the agent still receives data that was already written
  impl_->reader.join();
  ::close(impl_->fd);
}

void AgentChannel::send(const channel::FromWorker& message) noexcept {
  if (!connected()) return;
  try {
    impl_->write_frame(channel::encode(message));
  } catch (...) {
    // The message is too large to encode, or memory is exhausted. The message is dropped, because send() is only for
    // diagnostics.
  }
}

channel::StoreReply AgentChannel::request(channel::StoreRequest request, int generation) {
  std::future<channel::StoreReply> answer;
  std::uint64_t id = 0;
  {
    const std::lock_guard lock(impl_->requests_mutex);
    if (!impl_->connected) throw std::runtime_error(impl_->lost_because);
    if (impl_->held || generation < impl_->newest_generation) throw std::runtime_error(kSuperseded);
    id = request.id = ++impl_->last_id;
    Impl::Request& waiting = impl_->requests[id];
    waiting.generation = generation;
    answer = waiting.answer.get_future();
  }
  const auto erase_request = [&] {
    const std::lock_guard lock(impl_->requests_mutex);
    impl_->requests.erase(id);
  };
  try {
    if (!impl_->write_frame(channel::encode(channel::FromWorker(std::move(request))))) {
      erase_request();
      throw std::runtime_error(kGone);
    }
  } catch (...) {
    erase_request();
    throw;
  }
  return answer.get();
}

bool AgentChannel::connected() const noexcept {
  return impl_->connected;
}

}  // namespace ddprun::trainer
