#include "trainer/bench/run_bench.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/bench/bench_result.hpp"
#include "trainer/job/job_place.hpp"
#include "trainer/parallel/device.hpp"
#include "trainer/parallel/shared/shared_backend.hpp"

namespace ddprun::trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeout(120);
constexpr int kWarmUp = 5;
constexpr double kSecondsPerSize = 0.3;
constexpr std::int64_t kFewestRuns = 5;
constexpr std::int64_t kMaxRuns = 20'000;
constexpr int kPeriod = 5;  // the input values repeat after 5 elements

// The buffers of one size, and the collective that is measured with them. All values are small integers, so sums are exact.
class Case {
 public:
  Case(const BenchOptions& options, const Peers& peers, c10::Device device, std::int64_t bytes)
      : operation_(options.operation), peers_(peers), device_(device), copied_(options.copied) {
    const std::int64_t ranks = peers.world();
    const std::int64_t elements = std::max<std::int64_t>(bytes / static_cast<std::int64_t>(sizeof(float)) / ranks, 1) * ranks;
    const bool small_input = operation_ == BenchOperation::kAllGather;
    const bool small_output = operation_ == BenchOperation::kReduceScatter;
    input_ = buffer(small_input ? elements / ranks : elements);
    output_ = works_in_place() ? input_ : buffer(small_output ? elements / ranks : elements);
    bytes_ = elements * static_cast<std::int64_t>(sizeof(float));
  }

  std::int64_t bytes() const { return bytes_; }
  void clear() {
    input_.zero_();
    output_.zero_();
  }
  void run() {
    c10d::ProcessGroup& group = *peers_.group();
    std::vector<at::Tensor> tensors{input_};
    std::vector<std::int64_t> equal_rows;
    switch (operation_) {
      case BenchOperation::kAllReduce:
        group.allreduce(tensors)->wait();
        break;
      case BenchOperation::kReduceScatter:
        group._reduce_scatter_base(output_, input_)->wait();
        break;
      case BenchOperation::kAllGather:
        group._allgather_base(output_, input_)->wait();
        break;
      case BenchOperation::kBroadcast:
        group.broadcast(tensors)->wait();
        break;
      case BenchOperation::kAllToAll:
        group.alltoall_base(output_, input_, equal_rows, equal_rows)->wait();
        break;
      case BenchOperation::kSendReceive:
        send_and_receive();
        break;
    }
  }
  // All ranks must call this. Runs the collective once with known values. Returns the number of wrong elements on all ranks.
  std::int64_t wrong() {
    output_.zero_();
    input_.copy_(pattern(input_.numel(), 0) * (peers_.rank() + 1));
    run();
    std::array<double, 1> count{static_cast<double>((output_ != expected()).sum().item<std::int64_t>())};
    peers_.sum(count);
    return static_cast<std::int64_t>(count[0]);
  }
  void sync() const {
    if (!device_.is_cuda()) return;
    const c10::impl::VirtualGuardImpl guard(device_.type());
    guard.synchronizeDevice(device_.index());
  }

 private:
  bool works_in_place() const { return operation_ == BenchOperation::kAllReduce || operation_ == BenchOperation::kBroadcast; }
  at::Tensor buffer(std::int64_t elements) const {
    const auto options = at::TensorOptions(at::kFloat).device(device_);
    SharedBackend* const shared = shared_backend_of(*peers_.group());
    return shared != nullptr && !copied_ ? shared->allocateTensor(elements, options) : at::empty({elements}, options);
  }
  // Returns a tensor whose element i is (begin + i) % 5 + 1.
  at::Tensor pattern(std::int64_t elements, std::int64_t begin) const {
    return (at::arange(begin, begin + elements, at::TensorOptions(at::kLong).device(device_)).remainder(kPeriod) + 1)
        .to(at::kFloat);
  }
  at::Tensor expected() const {
    const std::int64_t ranks = peers_.world(), rank = peers_.rank(), elements = output_.numel();
    const std::int64_t part = elements / ranks;
    const auto all = static_cast<double>(ranks * (ranks + 1)) / 2;
    switch (operation_) {
      case BenchOperation::kAllReduce:
        return pattern(elements, 0) * all;
      case BenchOperation::kReduceScatter:
        return pattern(elements, rank * elements) * all;
      case BenchOperation::kBroadcast:
        return pattern(elements, 0);
      case BenchOperation::kSendReceive:
        return pattern(elements, 0) * static_cast<double>((rank + ranks - 1) % ranks + 1);
      case BenchOperation::kAllGather:
      case BenchOperation::kAllToAll:
        break;
    }
    at::Tensor values = at::empty({elements}, output_.options());
    const std::int64_t begin = operation_ == BenchOperation::kAllToAll ? rank * part : 0;
    for (std::int64_t other = 0; other < ranks; ++other) {
      values.narrow(0, other * part, part).copy_(pattern(part, begin) * static_cast<double>(other + 1));
    }
    return values;
  }
  // Each rank sends to the next one. Even ranks send first, because a send may wait for its receiver.
  void send_and_receive() {
    const int rank = peers_.rank(), ranks = peers_.world();
    const auto send = [&] { peers_.send(input_, (rank + 1) % ranks); };
    const auto receive = [&] { peers_.receive(output_, (rank + ranks - 1) % ranks); };
    if (rank % 2 == 0) {
      send();
      receive();
    } else {
      receive();
      send();
    }
  }

  BenchOperation operation_;
  const Peers& peers_;
  c10::Device device_;
  bool copied_;
  at::Tensor input_;
  at::Tensor output_;
  std::int64_t bytes_ = 0;
};

double seconds_of(Case& one, std::int64_t runs) {
  const Clock::time_point begin = Clock::now();
  for (std::int64_t i = 0; i < runs; ++i) one.run();
  one.sync();
  return std::chrono::duration<double>(Clock::now() - begin).count() / static_cast<double>(runs);
}

// All ranks must call this. Returns the time of one call on the slowest rank.
double measure(Case& one, const Peers& peers) {
  one.clear();
  const double first = seconds_of(one, kWarmUp);
  const auto wanted = static_cast<std::int64_t>(kSecondsPerSize / std::max(first, 1e-9));
  const std::int64_t runs = peers.smallest(std::clamp(wanted, kFewestRuns, kMaxRuns));
  peers.barrier();
  constexpr double kNano = 1e9;
  return static_cast<double>(peers.largest(static_cast<std::int64_t>(seconds_of(one, runs) * kNano))) / kNano;
}

DdpConfig::Backend backend_named(const std::string& name) {
  using Backend = DdpConfig::Backend;
  for (const auto& [text, backend] :
       {std::pair{"auto", Backend::kAuto}, {"shared", Backend::kShared}, {"gloo", Backend::kGloo}, {"nccl", Backend::kNccl}}) {
    if (name == text) return backend;
  }
  throw UsageError("unknown backend " + name + ": expected auto, shared, gloo or nccl");
}

std::string name_of_backend(c10d::ProcessGroup& group) {
  return group.getDefaultBackend()->getBackendName();
}

}  // namespace

int run_bench(const BenchOptions& options) {
  const DdpConfig::Backend backend = backend_named(options.backend);
  const WorkerEnvironment environment = read_environment();
  if (environment.world_size < 2) {
    throw UsageError(
        "bench needs at least 2 workers, but this job has 1. Start it with: ddprun --nproc-per-node 2 ddptrain bench " +
        std::string(name_of(options.operation)));
  }
  JobPlace place;
  place.begin(environment, "ddptrain bench");
  const c10::Device device = choose_device(TrainConfig::Device::kAuto, environment, Fallback::kCpu);
  const auto largest = static_cast<std::uint64_t>(*std::ranges::max_element(options.sizes));
  place.next_group(std::nullopt);
  place.form_group(device, {.timeout = kTimeout, .backend = backend, .bucket_bytes = 2 * largest + (1 << 20)});
  const Peers& peers = place.peers();
  const std::string used = name_of_backend(*peers.group());
  if (peers.rank() == 0 && !options.json) std::puts(bench_header(options.operation, used, peers.world()).c_str());
  std::int64_t wrong = 0;
  for (const std::int64_t bytes : options.sizes) {
    Case one(options, peers, device, bytes);
    BenchResult result{.operation = options.operation, .backend = used, .ranks = peers.world(), .bytes = one.bytes()};
    result.seconds = measure(one, peers);
    result.wrong = one.wrong();
    wrong += result.wrong;
    if (peers.rank() == 0) std::puts((options.json ? bench_json(result) : bench_line(result)).c_str());
    if (peers.rank() == 0) std::fflush(stdout);
  }
  peers.barrier();
  place.shut_down();
  return wrong == 0 ? 0 : 1;
}

}  // namespace ddprun::trainer
