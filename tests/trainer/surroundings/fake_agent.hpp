// An agent for tests: it serves the store of several workers' channels from one map, and keeps their other messages. Waiting
// requests are answered when their keys appear. A bounded wait for a key that begins with "never" times out immediately, so
// that no test waits.
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
  ~FakeAgent() { hang_up(); }
  FakeAgent(const FakeAgent&) = delete;
  FakeAgent& operator=(const FakeAgent&) = delete;

  // Returns the worker's end of a new channel; the caller owns it.
  int connect() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) throw std::runtime_error("socketpair");
    const std::lock_guard lock(mutex_);
    fds_.push_back(ends[0]);
    readers_.emplace_back([this, fd = ends[0]] { serve(fd); });
    return ends[1];
  }

  void say(const channel::FromAgent& message) {
    const std::lock_guard lock(mutex_);
    for (const int fd : fds_) write(fd, message);
  }

  // Closes all channels.
  void hang_up() {
    {
      const std::lock_guard lock(mutex_);
      for (const int fd : fds_) ::shutdown(fd, SHUT_RDWR);
    }
    for (auto& reader : readers_) reader.join();
    readers_.clear();
    for (const int fd : fds_) ::close(fd);
    fds_.clear();
  }

  // Blocks until a message of this kind has arrived.
  template <typename Message>
  Message heard() {
    std::unique_lock lock(mutex_);
    Message found;
    changed_.wait(lock, [&] {
      for (const auto& message : heard_) {
        if (const auto* wanted = std::get_if<Message>(&message)) {
          found = *wanted;
          return true;
        }
      }
      return false;
    });
    return found;
  }

  // The messages of this kind so far.
  template <typename Message>
  std::vector<Message> all() {
    const std::lock_guard lock(mutex_);
    std::vector<Message> found;
    for (const auto& message : heard_) {
      if (const auto* wanted = std::get_if<Message>(&message)) found.push_back(*wanted);
    }
    return found;
  }

  // Blocks until that many requests wait for keys.
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
          // Other requests may wait for the new value.
          std::erase_if(parked_, [&](const auto& waiting) { return answer(waiting.first, waiting.second); });
        } else {
          heard_.push_back(std::move(*message));
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

  // Returns false if the request has to wait.
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
  std::vector<channel::FromWorker> heard_;
  std::vector<int> fds_;
  std::vector<std::thread> readers_;
};

}  // namespace ddprun::trainer
