#include "trainer/parallel/process_group.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "common/base/error.hpp"
#include "trainer/parallel/bound_ports.hpp"
#include "trainer/parallel/channel_store.hpp"
#include "trainer/parallel/device.hpp"
#include "trainer/parallel/group_breaker.hpp"
#include "trainer/parallel/shared/segment_handover.hpp"
#include "trainer/parallel/shared/shared_backend.hpp"

namespace ddprun::trainer {
namespace {

using c10d::ProcessGroupGloo;
using GlooDevice = std::shared_ptr<::gloo::transport::Device>;

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

GlooDevice loopback_device() {
  try {
    return ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  } catch (const std::exception&) {
    return ProcessGroupGloo::createDeviceForHostname("::1");  // no IPv4 on this machine
  }
}

// Returns the local address of the route to `host`. Returns an empty string if there is no route, or if the address is
// loopback. connect() on a datagram socket sends no packet: the kernel only looks up the route.
std::string address_towards(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  for (const addrinfo* one = found; one; one = one->ai_next) {
    const int fd = ::socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage local{};
    socklen_t length = sizeof local;
    const bool known = ::connect(fd, one->ai_addr, one->ai_addrlen) == 0 &&
                       ::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0;
    ::close(fd);
    std::array<char, NI_MAXHOST> name{};
    if (!known ||
        ::getnameinfo(reinterpret_cast<sockaddr*>(&local), length, name.data(), name.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
      continue;
    }
    const std::string_view text(name.data());
    if (!text.starts_with("127.") && text != "::1") return std::string(text);
  }
  return "";
}

std::vector<GlooDevice> gloo_devices(const WorkerEnvironment& environment) {
  if (environment.local_world_size == environment.world_size) return {loopback_device()};
  if (const char* names = std::getenv("GLOO_SOCKET_IFNAME"); names && *names) {
    std::vector<GlooDevice> devices;
    std::string_view rest = names;
    while (true) {
      const std::size_t comma = rest.find(',');
      devices.push_back(ProcessGroupGloo::createDeviceForInterface(std::string(rest.substr(0, comma))));
      if (comma == std::string_view::npos) return devices;
      rest.remove_prefix(comma + 1);
    }
  }
  // The agent sets this variable to the address at which the agents of other nodes reach this node. If it is a loopback
  // address, all nodes are on this machine.
  if (const char* known = std::getenv("DDPRUN_NODE_ADDRESS"); known && *known) {
    const std::string address(known);
    if (address.starts_with("127.") || address == "::1") return {loopback_device()};
    return {ProcessGroupGloo::createDeviceForHostname(address)};
  }
  // PyTorch would use the address of the hostname, which often is 127.0.1.1 (Debian) or does not exist. Other nodes can reach
  // this node at the address on the route to the master.
  if (!environment.master_addr.empty()) {
    const std::string address = address_towards(environment.master_addr, environment.master_port);
    if (!address.empty()) return {ProcessGroupGloo::createDeviceForHostname(address)};
  }
  return {ProcessGroupGloo::createDefaultDevice()};
}

// A Gloo group whose collectives GroupBreaker can end. Collectives on GPU tensors are not wrapped: a wait for them ends only
// when Gloo ends them.
class BreakableGloo final : public ProcessGroupGloo {
 public:
  BreakableGloo(GroupBreaker& breaker, const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                c10::intrusive_ptr<Options> options)
      : ProcessGroupGloo(store, rank, size, std::move(options)), breaker_(breaker) {}

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    return guarded(tensors, ProcessGroupGloo::broadcast(tensors, options));
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    return guarded(tensors, ProcessGroupGloo::allreduce(tensors, options));
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override {
    return guarded(inputs, ProcessGroupGloo::allgather(outputs, inputs, options));
  }

 private:
  c10::intrusive_ptr<c10d::Work> guarded(const std::vector<at::Tensor>& tensors, c10::intrusive_ptr<c10d::Work> work) {
    return tensors.front().is_cpu() ? breaker_.collectives().guard(work) : work;
  }

  GroupBreaker& breaker_;
};

c10::intrusive_ptr<ProcessGroupGloo> make_gloo(const WorkerEnvironment& environment,
                                               const c10::intrusive_ptr<c10d::Store>& store, std::chrono::milliseconds timeout,
                                               GroupBreaker* breaker) {
  auto options = ProcessGroupGloo::Options::create(timeout);
  const char* const ports = std::getenv("DDPRUN_PORT_RANGE");
  const BoundPorts bound(ports != nullptr ? port_range_of(ports) : std::nullopt);
  try {
    if (breaker != nullptr) {
      const GroupBreaker::GroupCreation creation(*breaker);
      options->devices = gloo_devices(environment);
      return c10::make_intrusive<BreakableGloo>(*breaker, store, environment.rank, environment.world_size, std::move(options));
    }
    options->devices = gloo_devices(environment);
    return c10::make_intrusive<ProcessGroupGloo>(store, environment.rank, environment.world_size, std::move(options));
  } catch (const std::exception&) {
    if (const std::string problem = bound.problem(); !problem.empty()) throw InternalError(problem);
    throw;
  }
}

c10::intrusive_ptr<c10d::Store> make_tcp_store(const WorkerEnvironment& environment, std::chrono::milliseconds timeout) {
  if (environment.master_addr.empty() || environment.master_port == 0) {
    throw UsageError(std::string("the environment variable ") +
                     (environment.master_addr.empty() ? "MASTER_ADDR" : "MASTER_PORT") + " is not set, but rank " +
                     std::to_string(environment.rank) + " needs it to find " + std::to_string(environment.world_size - 1) +
                     " other workers. Start the workers with ddprun or torchrun, or set MASTER_ADDR to the host of rank 0 and "
                     "MASTER_PORT to a free port on it");
  }
  const std::string where = environment.master_addr + ":" + std::to_string(environment.master_port);
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(environment.master_port);
  options.isServer = environment.rank == 0 && !environment.use_agent_store;
  // The store must not wait for all workers, since make_process_group() already waits for them. In addition, torchrun's store
  // counts workers over all restarts, so after a restart its count would be wrong.
  options.waitWorkers = false;
  options.timeout = timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(environment.master_addr, options);
  } catch (const std::exception& error) {
    const std::string reason = first_line(error.what());
    if (options.isServer) {
      throw UsageError("rank 0 cannot open its key-value store at " + where + " (MASTER_ADDR:MASTER_PORT): " + reason +
                       ". Choose a free port as MASTER_PORT, and an address of this machine as MASTER_ADDR");
    }
    throw UsageError("rank " + std::to_string(environment.rank) + " cannot reach the key-value store of rank 0 at " + where +
                     " (MASTER_ADDR:MASTER_PORT): " + reason +
                     ". Check that rank 0 runs there and that no firewall blocks the port");
  }
}

}  // namespace

c10::intrusive_ptr<c10d::Store> make_store(const WorkerEnvironment& environment, AgentChannel* channel,
                                           std::chrono::milliseconds timeout, int generation) {
  if (environment.world_size == 1) {
    auto store = c10::make_intrusive<c10d::HashStore>();
    store->setTimeout(timeout);
    return store;
  }
  if (channel && channel->connected()) return c10::make_intrusive<ChannelStore>(*channel, timeout, generation);
  return make_tcp_store(environment, timeout);
}

void barrier_in_store(const WorkerEnvironment& environment, const c10::intrusive_ptr<c10d::Store>& store, int generation,
                      std::chrono::milliseconds timeout) {
  c10d::PrefixStore here("here/" + std::to_string(generation), store);
  std::vector<std::string> rank_keys;
  for (int rank = 0; rank < environment.world_size; ++rank) rank_keys.push_back(std::to_string(rank));
  here.set(rank_keys[static_cast<std::size_t>(environment.rank)], std::vector<std::uint8_t>{1});
  here.wait(rank_keys, timeout);
}

bool group_can_be_broken(c10::Device device, const WorkerEnvironment& environment, bool live_nccl) {
  return device.is_cpu() || shares_gpu(environment) || live_nccl;
}

std::string backend_problem(DdpConfig::Backend backend, c10::Device device) {
  using Backend = DdpConfig::Backend;
  if (device.is_cpu() && backend == Backend::kNccl) {
    return "\"ddp.backend\": \"nccl\" needs GPUs, but the workers compute on CPUs. Use \"auto\", \"shared\" or \"gloo\"";
  }
  if (!device.is_cpu() && (backend == Backend::kShared || backend == Backend::kGloo)) {
    return std::string("\"ddp.backend\": \"") + (backend == Backend::kShared ? "shared" : "gloo") +
           "\" needs workers on CPUs, but they compute on GPUs. Use \"auto\" or \"nccl\", or set \"device\": \"cpu\"";
  }
  return "";
}

bool wants_shared_memory(DdpConfig::Backend backend, const WorkerEnvironment& environment, c10::Device device) {
  using Backend = DdpConfig::Backend;
  const bool possible = device.is_cpu() && environment.world_size > 1 && environment.local_world_size == environment.world_size;
  // With three or more ranks, Gloo adds in a different order than shared memory. So "auto" keeps Gloo for three or more ranks.
  // With shared memory, the bits of existing runs would change.
  return possible && (backend == Backend::kShared || (backend == Backend::kAuto && environment.world_size == 2));
}

namespace {

// Returns the backend in shared memory, or null if the ranks must use Gloo.
c10::intrusive_ptr<SharedBackend> make_shared_backend(const WorkerEnvironment& environment, c10d::Store& store,
                                                      c10::Device device, const GroupRequest& request) {
  const bool wanted = wants_shared_memory(request.backend, environment, device);
  const auto bytes = wanted ? std::optional(request.bucket_bytes) : std::nullopt;
  const Handover handover = share_segment(store, environment.rank, environment.world_size, bytes);
  if (!handover.segment) {
    if (environment.rank == 0 && !handover.reason.empty()) {
      std::fprintf(stderr, "ddptrain: the workers communicate over Gloo instead of shared memory: %s\n",
                   handover.reason.c_str());
    }
    return nullptr;
  }
  auto attached = SharedBackend::attach(handover.segment, environment.rank, request.timeout);
  if (const auto* const error = std::get_if<collectives::SegmentError>(&attached)) throw std::runtime_error(error->message);
  const auto backend = std::get<c10::intrusive_ptr<SharedBackend>>(std::move(attached));
  if (request.breaker != nullptr) request.breaker->set_abortable(backend);
  return backend;
}

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(const WorkerEnvironment& environment,
                                                          const c10::intrusive_ptr<c10d::Store>& store, c10::Device device,
                                                          int generation, const GroupRequest& request) {
  if (const std::string problem = backend_problem(request.backend, device); !problem.empty()) throw UsageError(problem);
  const std::string name = "ddptrain/" + std::to_string(generation);
  const auto keys = c10::make_intrusive<c10d::PrefixStore>(name, store);
  keys->setTimeout(request.timeout);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(keys, environment.rank, environment.world_size);
  group->setGroupName(name);
  if (device.is_cpu() && environment.world_size > 1 && environment.local_world_size == environment.world_size) {
    c10d::PrefixStore shared_keys("shared", keys);
    if (const auto shared = make_shared_backend(environment, shared_keys, device, request)) {
      group->setBackend(c10::kCPU, c10d::ProcessGroup::CUSTOM, shared);
      group->setDefaultBackend(c10d::ProcessGroup::CUSTOM);
      return group;
    }
  }
  if (request.backend == DdpConfig::Backend::kShared && environment.rank == 0 &&
      environment.local_world_size < environment.world_size) {
    std::fprintf(stderr, "ddptrain: the workers communicate over Gloo instead of shared memory: they run on several nodes\n");
  }
  // CPU tensors (counts, losses) use Gloo even if the group also has NCCL. CUDA tensors use Gloo only if workers share a GPU.
  const c10::intrusive_ptr<c10d::Backend> gloo =
      make_gloo(environment, c10::make_intrusive<c10d::PrefixStore>("gloo", keys), request.timeout, request.breaker);
  group->setBackend(c10::kCPU, c10d::ProcessGroup::GLOO, gloo);
  group->setDefaultBackend(c10d::ProcessGroup::GLOO);
  if (device.is_cuda()) {
    CudaModule* const cuda = cuda_module();
    if (!cuda) throw InternalError("a process group for " + device.str() + " was requested before the CUDA module was opened");
    if (shares_gpu(environment)) {
      group->setBackend(c10::kCUDA, c10d::ProcessGroup::GLOO, gloo);
    } else {
      refuse_shared_gpu(*keys, environment.rank, cuda->device_uuid(device.index()));
      const auto nccl = cuda->make_nccl(c10::make_intrusive<c10d::PrefixStore>("nccl", keys), environment.rank,
                                        environment.world_size, device.index(), request.timeout);
      group->setBackend(c10::kCUDA, c10d::ProcessGroup::NCCL, nccl);
      group->setDefaultBackend(c10d::ProcessGroup::NCCL);
      if (request.breaker != nullptr && request.live_nccl) request.breaker->set_backend(nccl);
    }
  }
  return group;
}

bool is_lost_peer(const std::exception& error) {
  // These texts occur in the errors of Gloo and NCCL after a rank was killed (tests/trainer/parallel). A timeout is not in the
  // list, since this rank itself may have caused it.
  if (const auto* const shared = dynamic_cast<const collectives::CollectiveError*>(&error)) {
    return shared->failure() == collectives::CollectiveFailure::kAborted ||
           shared->failure() == collectives::CollectiveFailure::kRankLost;
  }
  const std::string_view text = error.what();
  for (const std::string_view sign : {"Connection closed by peer", "Connection reset by peer", "Broken pipe",
                                      "Connection refused", "remote process exited", "ncclRemoteError"}) {
    if (text.find(sign) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace ddprun::trainer
