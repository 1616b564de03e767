#include "trainer/parallel/breakable_works.hpp"

#include <ATen/core/ivalue_inl.h>
#include <c10/util/Exception.h>

#include <condition_variable>
#include <mutex>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

namespace ddprun::trainer {
namespace {

using c10::ivalue::Future;

class GuardedWork final : public c10d::Work {
 public:
  explicit GuardedWork(c10::intrusive_ptr<Future> future) : future_(std::move(future)) {}

  bool isCompleted() override { return future_->completed(); }
  bool isSuccess() const override { return future_->completed() && !future_->hasError(); }
  std::exception_ptr exception() const override { return future_->hasError() ? future_->exception_ptr() : nullptr; }
  bool wait(std::chrono::milliseconds timeout) override {
    TORCH_CHECK(timeout == kNoTimeout,
                "wait(timeout) is not supported for collectives of this process group; call wait() without a timeout");
    future_->waitAndThrow();
    return true;
  }
  c10::intrusive_ptr<Future> getFuture() override { return future_; }

 private:
  const c10::intrusive_ptr<Future> future_;
};

}  // namespace

struct BreakableWorks::State {
  std::mutex mutex;
  std::condition_variable changed;
  // One entry for each Work of Gloo that has not ended. The entry holds the future of the Work that guard() has returned; it is
  // null after release_waiters().
  std::set<std::shared_ptr<c10::intrusive_ptr<Future>>> waited_for;
};

BreakableWorks::BreakableWorks() : state_(std::make_shared<State>()) {}

c10::intrusive_ptr<c10d::Work> BreakableWorks::guard(const c10::intrusive_ptr<c10d::Work>& inner) {
  const auto ends = inner->getFuture();
  auto outer = c10::make_intrusive<Future>(ends->elementType());
  const auto entry = std::make_shared<c10::intrusive_ptr<Future>>(outer);
  {
    const std::lock_guard lock(state_->mutex);
    state_->waited_for.insert(entry);
  }
  ends->addCallback([state = state_, entry](Future& ended) {
    c10::intrusive_ptr<Future> waited;
    {
      const std::lock_guard lock(state->mutex);
      waited = std::move(*entry);
      state->waited_for.erase(entry);
    }
    state->changed.notify_all();
    if (!waited) return;
    if (ended.hasError()) {
      waited->setError(ended.exception_ptr());
    } else {
      waited->markCompleted(ended.value());
    }
  });
  return c10::make_intrusive<GuardedWork>(std::move(outer));
}

void BreakableWorks::release_waiters() {
  std::vector<c10::intrusive_ptr<Future>> futures;
  {
    const std::lock_guard lock(state_->mutex);
    for (const auto& entry : state_->waited_for) {
      if (*entry) futures.push_back(std::move(*entry));
    }
  }
  for (const auto& future : futures) {
    future->setError(
        std::make_exception_ptr(std::runtime_error("Connection closed by peer: the process group is being rebuilt")));
  }
}

bool BreakableWorks::all_ended(std::chrono::milliseconds timeout) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, timeout, [this] { return state_->waited_for.empty(); });
}

}  // namespace ddprun::trainer
