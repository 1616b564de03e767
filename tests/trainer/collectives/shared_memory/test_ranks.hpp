// Provides ranks for tests, as threads of this process or as child processes, and buffers of elements of any type.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "trainer/collectives/collectives.hpp"
#include "trainer/collectives/reduction.hpp"
#include "trainer/collectives/shared_memory/data_allocator.hpp"
#include "trainer/collectives/shared_memory/segment.hpp"
#include "trainer/collectives/shared_memory/shared_transport.hpp"

namespace ddprun::trainer::collectives {

// Returns the sizes of a segment with small slots, so that short buffers have several chunks.
inline SegmentSizes small_sizes(int ranks) {
  return {.ranks = static_cast<std::uint64_t>(ranks), .slot_bytes = 4096, .cell_bytes = 4096, .data_bytes = 1 << 18};
}

inline std::shared_ptr<const Segment> created(const SegmentSizes& sizes) {
  auto result = Segment::create(sizes);
  if (const auto* const error = std::get_if<SegmentError>(&result)) throw std::runtime_error(error->message);
  return std::make_shared<Segment>(std::move(std::get<Segment>(result)));
}

// Returns another mapping of the same memory. The thread sanitizer finds races only within one mapping, so with this sanitizer
// the same mapping is returned.
inline std::shared_ptr<const Segment> mapped_again(const std::shared_ptr<const Segment>& segment) {
#ifdef __SANITIZE_THREAD__
  return segment;
#else
  auto result = Segment::map(Descriptor(::dup(segment->fd())), segment->ranks());
  if (const auto* const error = std::get_if<SegmentError>(&result)) throw std::runtime_error(error->message);
  return std::make_shared<Segment>(std::move(std::get<Segment>(result)));
#endif
}

inline std::unique_ptr<SharedTransport> attached(const std::shared_ptr<const Segment>& segment, int rank,
                                                 const WaitSettings& waits) {
  auto result = SharedTransport::attach(segment, rank, waits);
  if (const auto* const error = std::get_if<SegmentError>(&result)) throw std::runtime_error(error->message);
  return std::move(std::get<std::unique_ptr<SharedTransport>>(result));
}

inline WaitSettings test_waits(int ranks, std::chrono::milliseconds limit = std::chrono::minutes(2)) {
  WaitSettings waits = waits_for(ranks);
  waits.limit = limit;
  return waits;
}

using RankBody = std::function<void(SharedTransport&)>;

// Runs one thread for each rank, each with its own mapping. Throws the first exception of the lowest rank.
inline void run_ranks(const SegmentSizes& sizes, const RankBody& body) {
  const int ranks = static_cast<int>(sizes.ranks);
  const std::shared_ptr<const Segment> segment = created(sizes);
  std::vector<std::exception_ptr> errors(sizes.ranks);
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(*attached(mapped_again(segment), rank, test_waits(ranks)));
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
          segment->abort({.kind = AbortCause::Kind::kOutside});
        }
      });
    }
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

// A child process that runs one rank. The destructor kills it.
class RankProcess {
 public:
  // The child process exits with the return value of `body`.
  explicit RankProcess(const std::function<int()>& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    int code = 99;
    try {
      code = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(code);
  }
  RankProcess(RankProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ~RankProcess() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }
  pid_t pid() const { return pid_; }
  // Returns the exit code, or 128 + the number of the signal.
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  pid_t pid_;
};

inline double value_at(ElementType type, const std::byte* data, std::size_t index) {
  const std::byte* const at = data + index * static_cast<std::size_t>(bytes_of(type));
  const auto as = [&]<class T>(T) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
  };
  switch (type) {
    case ElementType::kF64:
      return as(double{});
    case ElementType::kF32:
      return static_cast<double>(as(float{}));
    case ElementType::kF16:
      return static_cast<double>(float_of_half(as(std::uint16_t{})));
    case ElementType::kBf16:
      return static_cast<double>(float_of_bfloat16(as(std::uint16_t{})));
    case ElementType::kI64:
      return static_cast<double>(as(std::int64_t{}));
    case ElementType::kI32:
      return as(std::int32_t{});
    case ElementType::kI16:
      return as(std::int16_t{});
    case ElementType::kI8:
      return as(std::int8_t{});
    case ElementType::kU8:
    case ElementType::kBool:
      return as(std::uint8_t{});
  }
  return 0;
}

// `value` must fit into the type.
inline void set_value(ElementType type, std::byte* data, std::size_t index, double value) {
  std::byte* const at = data + index * static_cast<std::size_t>(bytes_of(type));
  const auto set = [&](auto typed) { std::memcpy(at, &typed, sizeof(typed)); };
  switch (type) {
    case ElementType::kF64:
      return set(value);
    case ElementType::kF32:
      return set(static_cast<float>(value));
    case ElementType::kF16:
      return set(half_of_float(static_cast<float>(value)));
    case ElementType::kBf16:
      return set(bfloat16_of_float(static_cast<float>(value)));
    case ElementType::kI64:
      return set(static_cast<std::int64_t>(value));
    case ElementType::kI32:
      return set(static_cast<std::int32_t>(value));
    case ElementType::kI16:
      return set(static_cast<std::int16_t>(value));
    case ElementType::kI8:
      return set(static_cast<std::int8_t>(value));
    case ElementType::kU8:
    case ElementType::kBool:
      return set(static_cast<std::uint8_t>(value));
  }
}

// The location of the buffers of a test.
enum class Place {
  kCopied,           // outside the shared-memory segment
  kUnaligned,        // outside the shared-memory segment, at an odd address
  kExposed,          // in the data area of the segment
  kExposedAnywhere,  // in the data area, at odd offsets that differ between ranks
  kMixed,            // in the data area of even ranks only
};

inline constexpr Place kPlaces[] = {Place::kCopied, Place::kUnaligned, Place::kExposed, Place::kExposedAnywhere, Place::kMixed};

// A buffer of one rank.
class TestBuffer {
 public:
  TestBuffer(SharedTransport& transport, DataAllocator& area, Place place, ElementType type, std::size_t elements)
      : type_(type), elements_(elements), bytes_(elements * static_cast<std::size_t>(bytes_of(type))) {
    const bool exposed =
        place == Place::kExposed || place == Place::kExposedAnywhere || (place == Place::kMixed && transport.rank() % 2 == 0);
    const std::size_t shift = place == Place::kUnaligned         ? 1
                              : place == Place::kExposedAnywhere ? 1 + static_cast<std::size_t>(transport.rank()) * 2
                                                                 : 0;
    if (exposed) {
      area_ = &area;
      offset_ = area.allocate(bytes_ + shift).value();
      data_ = transport.exposed_at(transport.rank(), offset_, bytes_ + shift) + shift;
    } else {
      memory_.resize(bytes_ + shift + 64);
      data_ = memory_.data() + shift;
    }
  }
  ~TestBuffer() {
    if (area_ != nullptr) area_->release(offset_);
  }
  TestBuffer(const TestBuffer&) = delete;
  TestBuffer& operator=(const TestBuffer&) = delete;

  std::byte* data() { return data_; }
  std::size_t bytes() const { return bytes_; }
  double at(std::size_t index) const { return value_at(type_, data_, index); }
  // Sets each element to a function of its index.
  void fill(const std::function<double(std::size_t)>& value) {
    for (std::size_t i = 0; i < elements_; ++i) set_value(type_, data_, i, value(i));
  }
  // Returns the index of the first element that differs from `value`, or the number of elements if all are equal.
  std::size_t first_difference(const std::function<double(std::size_t)>& value) const {
    for (std::size_t i = 0; i < elements_; ++i) {
      if (at(i) != value(i)) return i;
    }
    return elements_;
  }

 private:
  ElementType type_;
  std::size_t elements_;
  std::size_t bytes_;
  DataAllocator* area_ = nullptr;
  std::uint64_t offset_ = 0;
  std::vector<std::byte> memory_;
  std::byte* data_ = nullptr;
};

}  // namespace ddprun::trainer::collectives
