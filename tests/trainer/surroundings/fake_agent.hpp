// Simulates an agent for tests. It serves one store to the channels of several workers, and stores all other messages. A
// request that waits for a key is answered when the key is set. A wait with a time limit for a key that starts with "never"
// times out immediately, so that tests are fast.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/channel/codec.hpp"

namespace ddprun::trainer {

class FakeAgent {
 public:
  FakeAgent() = default;
  ~FakeAgent() { disconnect(); }
  FakeAgent(const FakeAgent&) = delete;
  FakeAgent& operator=(const FakeAgent&) = delete;

  // Returns the worker's end of a new channel. The caller owns the descriptor.
  int connect() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) throw std::runtime_error("socketpair");
    const std::lock_guard lock(mutex_);
    fds_.push_back(ends[0]);
    readers_.emplace_back([this, fd = ends[0]] { serve(fd); });
    return ends[1];
  }

  void send_to_worker(const channel::FromAgent& message) {
    const std::lock_guard lock(mutex_);
    for (const int fd : fds_) write(fd, message);
  }

  // Closes all channels.
  void disconnect() {
    {
      const std::lock_guard lock(mutex_);
      for (const int fd : fds_) ::shutdown(fd, SHUT_RDWR);
    }
    for (auto& reader : readers_) reader.join();
    readers_.clear();
    for (const int fd : fds_) ::close(fd);
    fds_.clear();
  }

  // Blocks until a message of this type has arrived, and returns it.
  template <typename Message>
  Message wait_for_message() {
    std::unique_lock lock(mutex_);
    Message found;
    changed_.wait(lock, [&] {
      for (const auto& message : received_) {
        if (const auto* wanted = std::get_if<Message>(&message)) {
          found = *wanted;
          return true;
        }
      }
      return false;
    });
    return found;
  }

  // Returns all messages of this type that have arrived so far.
  template <typename Message>
  std::vector<Message> all() {
    const std::lock_guard lock(mutex_);
    std::vector<Message> found;
    for (const auto& message : received_) {
      if (const auto* wanted = std::get_if<Message>(&message)) found.push_back(*wanted);
    }
    return found;
  }

  // Blocks until `count` requests are waiting for keys.
  void wait_until_parked(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return parked_.size() >= count; });
  }

 private:
  using Op = channel::StoreRequest::Op;
  using Status = channel::StoreReply::Status;

  void serve(int fd) {
    channel::Decoder decoder;
    std::array<std::byte, 4096> buffer;
    for (ssize_t got = 0; (got = ::recv(fd, buffer.data(), buffer.size(), 0)) > 0;) {
      decoder.feed(std::span(buffer.data(), static_cast<std::size_t>(got)));
      while (auto message = decoder.next_from_worker()) {
        const std::lock_guard lock(mutex_);
        if (auto* request = std::get_if<channel::StoreRequest>(&*message)) {
          if (!answer(fd, *request)) parked_.emplace_back(fd, *request);
          // If the request has set a key for which other requests wait, these requests are answered too.
          std::erase_if(parked_, [&](const auto& waiting) { return answer(waiting.first, waiting.second); });
        } else {
          received_.push_back(std::move(*message));
        }
        changed_.notify_all();
      }
    }
  }

  bool has_all(const std::vector<std::string>& keys) const {
    for (const auto& key : keys) {
      if (!values_.contains(key)) return false;
    }
    return true;
  }

  // Answers a request. Returns false if the request must wait for a key.
  bool answer(int fd, const channel::StoreRequest& request) {
    channel::StoreReply reply;
    reply.id = request.id;
    const std::string key = request.keys.empty() ? "" : request.keys[0];
    switch (request.op) {
      case Op::kSet:
        values_[key] = request.value;
        break;
      case Op::kTryGet:
      case Op::kGet:
      case Op::kWait:
        if (!has_all(request.keys)) {
          if (request.op == Op::kTryGet) {
            reply.status = Status::kNotFound;
            break;
          }
          if (request.timeout_ms < 0 || !key.starts_with("never")) return false;
          reply.status = Status::kTimeout;
        } else if (request.op != Op::kWait) {
          reply.value = values_[key];
        }
        break;
      case Op::kAdd: {
        const std::int64_t sum = (values_.contains(key) ? std::stoll(values_[key]) : 0) + request.amount;
        values_[key] = std::to_string(sum);
        reply.number = sum;
        break;
      }
      case Op::kCompareSet:
        if (!values_.contains(key) && !request.expected.empty()) {
          reply.status = Status::kNotFound;
          break;
        }
        if (values_[key] == request.expected) values_[key] = request.value;
        reply.value = values_[key];
        break;
      case Op::kDelete:
        reply.number = static_cast<std::int64_t>(values_.erase(key));
        break;
      case Op::kCheck:
        reply.number = has_all(request.keys) ? 1 : 0;
        break;
      case Op::kNumKeys:
        reply.number = static_cast<std::int64_t>(values_.size());
        break;
    }
    write(fd, reply);
    return true;
  }

  static void write(int fd, const channel::FromAgent& message) {
    const std::string frame = channel::encode(message);
    [[maybe_unused]] const auto written = ::send(fd, frame.data(), frame.size(), MSG_NOSIGNAL);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::list<std::pair<int, channel::StoreRequest>> parked_;
  std::vector<channel::FromWorker> received_;
  std::vector<int> fds_;
  std::vector<std::thread> readers_;
};

}  // namespace ddprun::trainer
