// The Work of a message that has not ended when send() or recv() returns. Its wait() ends the message
// (trainer/collectives/send_receive.hpp). Used only by shared_backend.cpp.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "trainer/parallel/shared/backend_tensors.hpp"
#include "trainer/parallel/shared/shared_backend.hpp"

namespace ddprun::trainer {

// Holds the backend, which is needed to finish the message.
class SharedBackend::MessageWork final : public c10d::Work {
 public:
  // `view` has the data of the message.
  MessageWork(c10::intrusive_ptr<SharedBackend> backend, c10d::OpType type, Tensors outputs,
              std::shared_ptr<ContiguousView> view, const collectives::Messages::Started& message)
      : c10d::Work(backend->getRank(), type),
        backend_(std::move(backend)),
        type_(type),
        outputs_(std::move(outputs)),
        view_(std::move(view)),
        message_(message) {}

  bool isCompleted() override {
    if (c10d::Work::isCompleted()) return true;
    const std::unique_lock lock(backend_->mutex_, std::try_to_lock);
    if (!lock) return false;
    try {
      if (!backend_->messages_.has_ended(message_)) return false;
      end(nullptr);
    } catch (const collectives::CollectiveError&) {
      end(std::current_exception());
    }
    return true;
  }
  // The limit of the group applies instead of this one.
  bool wait(std::chrono::milliseconds) override {
    if (!c10d::Work::isCompleted()) end(backend_->execute([&] { backend_->messages_.finish(message_); }));
    if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
    return true;
  }
  void abort() override {}
  Tensors result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    try {
      wait(kNoTimeout);
    } catch (const collectives::CollectiveError&) {
      return backend_->ended(type_, outputs_, std::current_exception())->getFuture();
    }
    return backend_->ended(type_, outputs_, nullptr)->getFuture();
  }

 private:
  void end(const std::exception_ptr& error) {
    if (!error && !message_.sends) view_->finish();
    finish(error);
  }

  c10::intrusive_ptr<SharedBackend> backend_;
  c10d::OpType type_;
  Tensors outputs_;
  std::shared_ptr<ContiguousView> view_;
  collectives::Messages::Started message_;
};

}  // namespace ddprun::trainer
