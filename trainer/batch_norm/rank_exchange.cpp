// Implementation of rank_exchange.hpp. Each collective gets its own tensors, because a collective may continue to use its
// tensors after its process group was aborted.
#include "trainer/batch_norm/rank_exchange.hpp"

#include <ATen/ops/empty.h>

#include <utility>
#include <vector>

namespace ddprun::trainer {

RankExchange::RankExchange(c10::intrusive_ptr<c10d::ProcessGroup> group, std::function<void(bool)> waits)
    : group_(std::move(group)), waits_(std::move(waits)) {}

at::Tensor RankExchange::from_all(const at::Tensor& own) {
  const at::Tensor all = at::empty({group_->getSize(), own.numel()}, own.options());
  std::vector<std::vector<at::Tensor>> rows{all.unbind(0)};
  std::vector<at::Tensor> given{own.clone()};
  wait(group_->allgather(rows, given));
  return all;
}

at::Tensor RankExchange::sum(const at::Tensor& own) {
  std::vector<at::Tensor> tensors{own.clone()};
  wait(group_->allreduce(tensors));
  return tensors.front();
}

void RankExchange::wait(const c10::intrusive_ptr<c10d::Work>& work) {
  const auto begin = std::chrono::steady_clock::now();
  if (waits_) waits_(true);
  work->wait();
  if (waits_) waits_(false);
  waited_ += std::chrono::steady_clock::now() - begin;
}

std::chrono::nanoseconds RankExchange::take_waited() {
  return std::exchange(waited_, {});
}

}  // namespace ddprun::trainer
