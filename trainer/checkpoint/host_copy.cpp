#include "trainer/checkpoint/host_copy.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace ddprun::trainer {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
// Minimum number of bytes per thread, since the start of a thread costs about 50 us.
constexpr std::size_t kMinThreadBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxThreads = 4;  // four threads saturate the memory bandwidth

std::size_t rounded_up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

struct Piece {
  char* to = nullptr;
  const char* from = nullptr;
  std::size_t bytes = 0;
};

// Copies the bytes [begin, end) of the pieces, counted as if all pieces were one array.
void copy_range(std::span<const Piece> pieces, std::size_t begin, std::size_t end) {
  std::size_t at = 0;
  for (const Piece& piece : pieces) {
    const std::size_t first = std::max(begin, at), last = std::min(end, at + piece.bytes);
    if (first < last) std::memcpy(piece.to + (first - at), piece.from + (first - at), last - first);
    at += piece.bytes;
    if (at >= end) return;
  }
}

// Copies all pieces in several threads. Training waits for this copy, so the cores of the training threads are idle meanwhile.
void copy_all(std::span<const Piece> pieces) {
  std::size_t total = 0;
  for (const Piece& piece : pieces) total += piece.bytes;
  const std::size_t threads = std::clamp<std::size_t>(
      total / kMinThreadBytes, 1, std::min<std::size_t>(kMaxThreads, std::max(1U, std::thread::hardware_concurrency())));
  const std::size_t share = rounded_up(total / threads + 1, kAlignment);
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < threads; ++i) others.emplace_back([=] { copy_range(pieces, i * share, (i + 1) * share); });
  copy_range(pieces, 0, share);
}

template <class Bits>
bool has_all_ones(const at::Tensor& tensor, Bits exponent) {
  const auto* bits = static_cast<const Bits*>(tensor.const_data_ptr());
  const auto count = static_cast<std::size_t>(tensor.numel());
  // The inner loop has a constant length and no early exit, so that the compiler can vectorize it.
  constexpr std::size_t kBlockElements = 4096;
  std::size_t begin = 0;
  for (; begin + kBlockElements <= count; begin += kBlockElements) {
    Bits found = 0;
    for (std::size_t i = 0; i < kBlockElements; ++i) {
      found = static_cast<Bits>(found | ((bits[begin + i] & exponent) == exponent ? Bits{1} : Bits{0}));
    }
    if (found != 0) return true;
  }
  for (; begin < count; ++begin) {
    if ((bits[begin] & exponent) == exponent) return true;
  }
  return false;
}

bool is_finite(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return !has_all_ones<std::uint32_t>(tensor, 0x7f800000U);
    case at::kDouble:
      return !has_all_ones<std::uint64_t>(tensor, 0x7ff0000000000000ULL);
    case at::kHalf:
      return !has_all_ones<std::uint16_t>(tensor, 0x7c00U);
    case at::kBFloat16:
      return !has_all_ones<std::uint16_t>(tensor, 0x7f80U);
    default:
      return true;
  }
}

}  // namespace

// The memory of the copy. It uses huge pages if the kernel provides them, because page faults on 500 MB in 4 KiB pages cost
// more than the copy itself. This class pins the memory itself, because PyTorch's allocator of pinned memory rounds up to a
// power of two: 18 GB would take 32 GB.
class HostCopy::Block {
 public:
  Block(std::size_t bytes, const Source& source)
      : bytes_(rounded_up(std::max<std::size_t>(bytes, 1), kHugePage)), unpin_(source.unpin) {
    void* const mapped = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    ::madvise(mapped, bytes_, MADV_HUGEPAGE);
    data_ = static_cast<char*>(mapped);
    pinned_ = source.pin && source.pin(data_, bytes_);
  }
  ~Block() {
    if (pinned_ && unpin_) unpin_(data_);
    ::munmap(data_, bytes_);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::size_t bytes() const { return bytes_; }
  char* data() const { return data_; }

 private:
  std::size_t bytes_;
  char* data_ = nullptr;
  bool pinned_ = false;
  std::function<void(void* memory)> unpin_;
};

HostCopy::HostCopy(Source source) : source_(std::move(source)) {}
HostCopy::HostCopy() = default;
HostCopy::~HostCopy() = default;

std::size_t HostCopy::bytes_for(const CheckpointState& state) {
  std::size_t bytes = 0;
  for (const auto& [role, tensors] : tensors_by_role(state)) {
    for (const NamedTensor& entry : *tensors) bytes += rounded_up(entry.tensor.nbytes(), kAlignment);
  }
  return bytes;
}

void HostCopy::prepare(std::size_t bytes) {
  coming_ = std::async(std::launch::async, [bytes, source = source_] { return std::make_unique<Block>(bytes, source); });
}

CheckpointState HostCopy::take(const CheckpointState& live) {
  const at::NoGradGuard no_gradients;
  CheckpointState copy = live;
  if (coming_.valid()) {
    try {
      block_ = coming_.get();
    } catch (const std::bad_alloc&) {
      block_.reset();  // the code below then tries to allocate again
    }
  }
  const std::size_t bytes = bytes_for(live);
  if (!block_ || block_->bytes() < bytes) {
    block_.reset();  // the old block is freed first, so that two blocks never exist at the same time
    block_ = std::make_unique<Block>(bytes, source_);
  }

  std::vector<Piece> pieces;
  std::size_t at = 0;
  for (const auto& [role, tensors] : tensors_by_role(copy)) {
    for (NamedTensor& entry : *tensors) {
      const at::Tensor from = entry.tensor.detach();
      char* const to = block_->data() + at;
      at += rounded_up(from.nbytes(), kAlignment);
      entry.tensor = at::from_blob(to, from.sizes(), at::TensorOptions(from.scalar_type()));
      if (from.is_cpu() && from.is_contiguous()) {
        if (from.nbytes() > 0) pieces.push_back({to, static_cast<const char*>(from.const_data_ptr()), from.nbytes()});
      } else {
        entry.tensor.copy_(from, /*non_blocking=*/source_.on_device);
      }
    }
  }
  copy_all(pieces);
  if (source_.on_device && source_.synchronize) source_.synchronize();
  return copy;
}

bool all_finite(const std::vector<NamedTensor>& host_tensors) {
  return std::all_of(host_tensors.begin(), host_tensors.end(),
                     [](const NamedTensor& entry) { return is_finite(entry.tensor); });
}

bool all_finite(const CheckpointState& host_copy) {
  return std::ranges::all_of(tensors_by_role(host_copy), [](const auto& of_role) { return all_finite(*of_role.second); });
}

}  // namespace ddprun::trainer
