// Implementation of flag_model.hpp.
#include "tests/trainer/collectives/flag_model.hpp"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <optional>
#include <unordered_set>

namespace ddprun::trainer::collectives::model {
namespace {

constexpr std::size_t kThreads = 4;  // up to 3 ranks, and a process that aborts
constexpr std::size_t kWords = 12;
constexpr std::size_t kStackBytes = 64 << 10;

struct Stop {};     // unwinds a fiber at the end of an execution
struct Aborted {};  // a rank has found the abort bit

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccd;
  return hash ^ (hash >> 32);
}

struct View {
  std::array<std::uint16_t, kWords> words{};  // for each word, the oldest write that the thread may still read
  // for each thread, the number of its publications that happened before this view
  std::array<std::uint16_t, kThreads> clocks{};
  void join(const View& other) {
    for (std::size_t i = 0; i < kWords; ++i) words[i] = std::max(words[i], other.words[i]);
    for (std::size_t i = 0; i < kThreads; ++i) clocks[i] = std::max(clocks[i], other.clocks[i]);
  }
  // `oldest` has, for each word, the oldest write that a rank can still read.
  std::uint64_t hash(const std::array<std::uint16_t, kWords>& oldest) const {
    std::uint64_t result = 1;
    for (std::size_t i = 0; i < kWords; ++i) result = mixed(result, std::max(words[i], oldest[i]) - oldest[i]);
    for (const std::uint16_t each : clocks) result = mixed(result, each);
    return result;
  }
};

struct Write {
  std::uint32_t value = 0;
  View view{};  // an acquire load of this write joins this view
};

struct Location {
  std::uint64_t value = 0;
  std::size_t writer = 0;
  std::uint16_t written_at = 0;
  std::array<std::uint16_t, kThreads> read_at{};  // 0 if this thread has not read the write
  bool written = false;
};

struct Fiber {
  ucontext_t context{};
  std::jmp_buf resume{};
  bool entered = false;
  std::unique_ptr<std::byte[]> stack;
  std::function<void()> body;

  bool done = false;
  bool unwinding = false;
  View view{};
  // hash of the results of all operations, which represents the local state of the fiber
  std::uint64_t trace = 0;
  std::uint64_t loop_trace = 0;            // the trace at the start of a loop that waits
  std::optional<std::size_t> sleeps_on{};  // word for which the fiber sleeps
  std::optional<std::size_t> loads{};      // if the next operation is a load in a wait loop: the word that it loads
  bool in_loop = false;                    // the fiber waits in a loop and has read the word at least once
  std::uint32_t awaited = 0;               // the phase for which the fiber waits
  std::uint16_t last_read = 0;             // the newest write that the loop has read

  std::size_t oldest_readable(std::size_t word) const { return in_loop ? last_read + 1u : view.words[word]; }
};

class Explorer {
 public:
  Explorer(const Scenario& scenario, const Mutation& mutation) : scenario_(scenario), mutation_(mutation) {}
  Result run();

  const Scenario& scenario() const { return scenario_; }
  const Mutation& mutation() const { return mutation_; }
  Fiber& current() { return fibers_[current_]; }
  std::size_t current_index() const { return current_; }

  // Stops the fiber before an atomic operation. If a waiting fiber is about to load a word, `loads` is the number of this
  // word.
  void before_operation(std::optional<std::size_t> loads = std::nullopt);
  unsigned choose(unsigned count);
  std::vector<Write>& history(std::size_t word) { return words_[word]; }
  // Returns false if the explorer can skip the case in which the fiber's load returns this write.
  bool is_useful(const Fiber& fiber, std::size_t word, std::size_t time) const;
  std::uint32_t modify(std::size_t word, std::uint32_t value, bool release);
  void wake(std::size_t word);
  void violate(const std::string& what) {
    if (result_.violation.empty()) result_.violation = what;
  }
  Location& location(std::uint64_t key) { return data_[key]; }

 private:
  struct Choice {
    unsigned chosen, count;
  };
  void execute();
  bool can_run(const Fiber& fiber) const;
  std::uint64_t state() const;
  void switch_to(std::size_t index);
  void unwind();
  static void enter();

  const Scenario& scenario_;
  const Mutation& mutation_;
  std::array<Fiber, kThreads> fibers_;
  std::size_t threads_ = 0;
  std::size_t current_ = 0;
  std::array<std::vector<Write>, kWords> words_;
  std::map<std::uint64_t, Location> data_;
  std::vector<Choice> choices_;
  std::size_t position_ = 0;
  std::unordered_set<std::uint64_t> visited_;
  std::jmp_buf scheduler_{};
  Result result_;
};

Explorer* explorer = nullptr;

// An atomic word of the model. The templates of flag_word.hpp use it instead of a real atomic word.
class ModelWord {
 public:
  explicit ModelWord(std::size_t index) : index_(index) {}
  std::size_t index() const { return index_; }

  std::uint32_t load(std::memory_order order) {
    explorer->current().trace = explorer->current().loop_trace;
    explorer->before_operation(index_);
    Fiber& fiber = explorer->current();
    const auto& history = explorer->history(index_);
    std::vector<std::uint16_t> readable;
    for (std::size_t time = fiber.oldest_readable(index_); time < history.size(); ++time) {
      if (explorer->is_useful(fiber, index_, time)) readable.push_back(static_cast<std::uint16_t>(time));
    }
    const std::uint16_t read = readable[explorer->choose(static_cast<unsigned>(readable.size()))];
    fiber.view.words[index_] = fiber.last_read = read;
    fiber.in_loop = true;
    if (order == std::memory_order_acquire && !explorer->mutation().relaxed_load) fiber.view.join(history[read].view);
    const std::uint32_t value = history[read].value;
    fiber.trace = mixed(fiber.loop_trace, value);
    return explorer->mutation().abort_unchecked ? value & ~kAbortedBit : value;
  }
  std::uint32_t fetch_add(std::uint32_t added, std::memory_order order) {
    explorer->before_operation();
    const std::uint32_t before = explorer->history(index_).back().value;
    explorer->current().trace = mixed(explorer->current().trace, before & (kSleeperBit | kAbortedBit));
    const std::uint32_t kept = explorer->mutation().lost_abort_bit ? before & ~kAbortedBit : before;
    explorer->modify(index_, kept + added, order == std::memory_order_release && !explorer->mutation().relaxed_publish);
    return explorer->mutation().abort_unchecked ? before & ~kAbortedBit : before;
  }
  std::uint32_t fetch_and(std::uint32_t mask, std::memory_order order) {
    explorer->before_operation();
    return explorer->modify(index_, explorer->history(index_).back().value & mask, order == std::memory_order_release);
  }
  std::uint32_t fetch_or(std::uint32_t bits, std::memory_order order) {
    explorer->before_operation();
    const std::uint32_t before = explorer->history(index_).back().value;
    explorer->current().trace = mixed(explorer->current().trace, before & kSleeperBit);
    return explorer->modify(index_, before | bits, order == std::memory_order_release);
  }
  bool compare_exchange_strong(std::uint32_t& expected, std::uint32_t value, std::memory_order order) {
    explorer->before_operation();
    const std::uint32_t last = explorer->history(index_).back().value;
    const bool hidden = explorer->mutation().abort_unchecked;
    if ((hidden ? last & ~kAbortedBit : last) != expected) return false;
    explorer->modify(index_, hidden ? value | (last & kAbortedBit) : value, order == std::memory_order_release);
    explorer->current().last_read = static_cast<std::uint16_t>(explorer->history(index_).size() - 1);
    return true;
  }

 private:
  std::size_t index_;
};

class ModelWaiter {
 public:
  explicit ModelWaiter(std::uint32_t phase) {
    explorer->current().awaited = phase;
    explorer->current().in_loop = false;
    explorer->current().loop_trace = explorer->current().trace;
  }
  bool spins() {
    const Waiting waiting = explorer->scenario().waiting;
    return waiting == Waiting::kSpin || (waiting == Waiting::kEither && explorer->choose(2) == 1);
  }
  bool sleeps(ModelWord& word, std::uint32_t seen) {
    explorer->before_operation();
    const std::uint32_t last = explorer->history(word.index()).back().value;
    const bool same = (explorer->mutation().abort_unchecked ? last & ~kAbortedBit : last) == seen;
    if (!same && !explorer->mutation().blind_sleep) return true;
    explorer->current().sleeps_on = word.index();
    explorer->before_operation();  // the fiber continues here after a wake
    return true;
  }
};

class ModelTransport final : public Transport {
 public:
  explicit ModelTransport(int rank) : rank_(rank) {}
  int rank() const override { return rank_; }
  int ranks() const override { return explorer->scenario().ranks; }
  void start(const OperationDescriptor& operation) override {
    ++operations_;
    write_data(rank_, Data::kDescriptor, rank_, turn(), operation.elements * 2 + (operation.exposed ? 1 : 0));
    own_ = operation;
  }
  OperationDescriptor started_by(int rank) const override {
    OperationDescriptor operation = own_;
    const std::uint64_t value = read_data(rank_, Data::kDescriptor, rank, turn());
    operation.elements = value / 2;
    operation.exposed = value % 2 == 1;
    return operation;
  }
  std::uint32_t arrive() override {
    phase_ += kPhaseStep;
    publish(words_[static_cast<std::size_t>(rank_)]);
    return phase_;
  }
  void await_all(std::uint32_t phase) override {
    for (int rank = 0; rank < ranks(); ++rank) {
      if (rank != rank_) await(words_[static_cast<std::size_t>(rank)], phase);
    }
  }
  void fail_mismatch(const std::string& message) override {
    explorer->violate("unexpected mismatch: " + message);
    throw Aborted();
  }
  std::size_t next_slot() override { return slots_++ % explorer->mutation().slots; }
  std::size_t slot_bytes() const override { return 64; }
  std::byte* slot_of(int, std::size_t) const override { return memory(); }
  std::optional<std::uint64_t> offset_of(const void*, std::size_t) const override {
    return explorer->scenario().exposed ? std::optional<std::uint64_t>(0) : std::nullopt;
  }
  std::byte* exposed_at(int, std::uint64_t, std::size_t) const override { return memory(); }
  std::size_t cell_bytes() const override { return 128; }
  std::byte* cell_of(int from, int to, std::size_t cell) const override {
    static std::byte cells[3][3][2][128];
    if (rank_ == from) {
      write_data(rank_, Data::kCell, from, static_cast<std::size_t>(to) * 2 + cell, 1);
    } else {
      read_data(rank_, Data::kCell, from, static_cast<std::size_t>(to) * 2 + cell);
    }
    return cells[from][to][cell];
  }
  void arrive_in_lane(int from, int to, LaneEnd end) override { publish(lane(from, to, end)); }
  void await_in_lane(int from, int to, LaneEnd end, std::uint64_t cells) override {
    await(lane(from, to, end), static_cast<std::uint32_t>(cells * kPhaseStep));
  }
  // Never called: send() and recv() of the model block until the message has been transferred.
  bool reached_in_lane(int, int, LaneEnd, std::uint64_t) override {
    require(false, "the model has no started messages");
    return false;
  }
  void set_progress(std::function<bool()>) override {}

  static void abort_all() {
    const auto wake = [](ModelWord& word) {
      explorer->before_operation();
      if (!explorer->mutation().no_wake_on_abort) explorer->wake(word.index());
    };
    for (int rank = 0; rank < explorer->scenario().ranks; ++rank) abort_word(words_[static_cast<std::size_t>(rank)], wake);
  }

 private:
  std::size_t turn() const { return operations_ % explorer->mutation().descriptors; }
  static std::byte* memory() {
    static std::byte bytes[4096];
    return bytes;
  }
  // The model has only messages from rank 1 to rank 0.
  static ModelWord& lane(int from, int to, LaneEnd end) {
    require(from == 1 && to == 0, "the model has only the lane from rank 1 to rank 0");
    return words_[end == LaneEnd::kSender ? 3 : 4];
  }
  // The trace contains only results on which the code after the call depends.
  static void publish(ModelWord& word) {
    const std::uint64_t trace = explorer->current().trace;
    const bool running = advance_word(word, [](ModelWord& each) {
      explorer->before_operation();
      if (!explorer->mutation().no_wake) explorer->wake(each.index());
    });
    explorer->current().trace = mixed(trace, running ? 2 : 3);
    if (!running) throw Aborted();
  }
  static void await(ModelWord& word, std::uint32_t phase) {
    const WaitOutcome outcome = await_phase(word, phase, ModelWaiter(phase));
    explorer->current().trace = mixed(explorer->current().loop_trace, outcome == WaitOutcome::kReached ? 4 : 5);
    if (outcome != WaitOutcome::kReached) throw Aborted();
  }

  static inline std::array<ModelWord, 5> words_{ModelWord(0), ModelWord(1), ModelWord(2), ModelWord(3), ModelWord(4)};
  int rank_;
  std::uint32_t phase_ = 0;
  std::size_t operations_ = 0;
  std::size_t slots_ = 0;
  OperationDescriptor own_{};
};

void Explorer::before_operation(std::optional<std::size_t> loads) {
  Fiber& fiber = current();
  if (fiber.unwinding) throw Stop();
  fiber.loads = loads;
  // The trace changes at each operation, so that two places in the code differ even if no result lies between them.
  fiber.trace = mixed(fiber.trace, 7);
  if (_setjmp(fiber.resume) == 0) _longjmp(scheduler_, 1);
  if (current().unwinding) throw Stop();
  current().loads.reset();
}

unsigned Explorer::choose(unsigned count) {
  if (count == 1) return 0;
  if (position_ == choices_.size()) choices_.push_back({0, count});
  return choices_[position_++].chosen;
}

std::uint32_t Explorer::modify(std::size_t word, std::uint32_t value, bool release) {
  Fiber& fiber = current();
  std::vector<Write>& writes = words_[word];
  const Write before = writes.back();
  const auto time = static_cast<std::uint16_t>(writes.size());
  fiber.view.words[word] = time;
  Write write{.value = value, .view = before.view};
  write.view.words[word] = time;
  if (release) {
    write.view.join(fiber.view);
    ++fiber.view.clocks[current_];
  }
  writes.push_back(write);
  return before.value;
}

void Explorer::wake(std::size_t word) {
  for (Fiber& fiber : fibers_) {
    if (fiber.sleeps_on == word) fiber.sleeps_on.reset();
  }
}

bool Explorer::can_run(const Fiber& fiber) const {
  if (fiber.done || fiber.sleeps_on) return false;
  if (!fiber.loads) return true;
  // A waiter that has already read the newest write is blocked, because its next load can return nothing new.
  const std::size_t word = *fiber.loads;
  for (std::size_t time = fiber.oldest_readable(word); time < words_[word].size(); ++time) {
    if (is_useful(fiber, word, time)) return true;
  }
  return false;
}

bool Explorer::is_useful(const Fiber& fiber, std::size_t word, std::size_t time) const {
  if (scenario_.ranks < 3) return true;
  const std::uint32_t value = words_[word][time].value;
  if (has_reached(value, fiber.awaited) || (value & kAbortedBit) != 0) return true;
  return scenario_.waiting != Waiting::kSpin && time + 1 == words_[word].size();
}

// Positions in a history are counted from the oldest write that a rank can still read. If they were counted from the start,
// two executions that differ only in the number of earlier sleeps would never reach the same state.
std::uint64_t Explorer::state() const {
  std::array<std::uint16_t, kWords> oldest{};
  oldest.fill(0xffff);
  for (std::size_t i = 0; i < threads_; ++i) {
    if (fibers_[i].done) continue;
    for (std::size_t word = 0; word < kWords; ++word) oldest[word] = std::min(oldest[word], fibers_[i].view.words[word]);
  }
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < threads_; ++i) {
    const Fiber& fiber = fibers_[i];
    if (fiber.done) {
      hash = mixed(hash, 1);
      continue;
    }
    hash = mixed(mixed(hash, fiber.trace), fiber.view.hash(oldest));
    hash = mixed(hash, fiber.sleeps_on ? 10 + *fiber.sleeps_on : 1);
    const std::uint64_t read = fiber.loads && fiber.in_loop ? 100u + fiber.last_read - oldest[*fiber.loads] : 0u;
    hash = mixed(hash, fiber.loads ? 10 + *fiber.loads + read * 100 : 1);
  }
  for (std::size_t word = 0; word < kWords; ++word) {
    for (std::size_t time = oldest[word]; time < words_[word].size(); ++time) {
      hash = mixed(mixed(hash, words_[word][time].value), words_[word][time].view.hash(oldest));
    }
    hash = mixed(hash, word);
  }
  for (const auto& [key, each] : data_) {
    hash = mixed(mixed(mixed(hash, key), each.value), each.writer * 65536 + each.written_at);
    for (const std::uint16_t read : each.read_at) hash = mixed(hash, read);
  }
  return hash;
}

void Explorer::enter() {
  while (true) {
    Fiber& fiber = explorer->current();
    try {
      if (!fiber.unwinding) fiber.body();
    } catch (const Stop&) {
    } catch (const Aborted&) {
    } catch (const std::exception& error) {
      explorer->violate(error.what());
    }
    Fiber& ended = explorer->current();
    ended.done = true;
    if (_setjmp(ended.resume) == 0) _longjmp(explorer->scheduler_, 1);
  }
}

void Explorer::switch_to(std::size_t index) {
  current_ = index;
  Fiber& fiber = fibers_[index];
  if (_setjmp(scheduler_) != 0) return;
  if (fiber.entered) _longjmp(fiber.resume, 1);
  fiber.entered = true;
  fiber.stack = std::make_unique<std::byte[]>(kStackBytes);
  ::getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  ::makecontext(&fiber.context, &Explorer::enter, 0);
  ::setcontext(&fiber.context);
}

void Explorer::unwind() {
  for (std::size_t i = 0; i < threads_; ++i) {
    if (fibers_[i].done || !fibers_[i].entered) continue;
    fibers_[i].unwinding = true;
    switch_to(i);
  }
}

void Explorer::execute() {
  position_ = 0;
  data_.clear();
  for (auto& history : words_) history.assign(1, Write{});
  for (std::size_t i = 0; i < threads_; ++i) {
    Fiber& fiber = fibers_[i];
    fiber.done = fiber.unwinding = fiber.in_loop = false;
    fiber.view = View{};
    fiber.view.clocks[i] = 1;
    fiber.trace = i;
    fiber.sleeps_on.reset();
    fiber.loads.reset();
  }
  // Runs each fiber up to its first operation.
  for (std::size_t i = 0; i < threads_; ++i) switch_to(i);
  while (result_.violation.empty()) {
    if (position_ == choices_.size() && !visited_.insert(state()).second) break;
    std::array<std::size_t, kThreads> ready{};
    unsigned count = 0;
    bool all_done = true;
    for (std::size_t i = 0; i < threads_; ++i) {
      all_done = all_done && fibers_[i].done;
      if (can_run(fibers_[i])) ready[count++] = i;
    }
    if (all_done) break;
    if (count == 0) {
      violate("a rank waits without an end");
      break;
    }
    switch_to(ready[choose(count)]);
  }
  unwind();
}

Result Explorer::run() {
  explorer = this;
  threads_ = static_cast<std::size_t>(scenario_.ranks) + (scenario_.aborts ? 1 : 0);
  for (std::size_t i = 0; i < threads_; ++i) {
    const int rank = static_cast<int>(i);
    fibers_[i].body = rank < scenario_.ranks ? std::function<void()>([this, rank] {
      ModelTransport transport(rank);
      scenario_.program(transport);
    })
                                             : std::function<void()>([] { ModelTransport::abort_all(); });
  }
  while (true) {
    ++result_.executions;
    execute();
    if (!result_.violation.empty()) break;
    while (!choices_.empty() && choices_.back().chosen + 1 == choices_.back().count) choices_.pop_back();
    if (choices_.empty()) break;
    ++choices_.back().chosen;
  }
  result_.states = visited_.size();
  explorer = nullptr;
  return result_;
}

std::uint64_t key_of(Data kind, int rank, std::size_t index) {
  return (static_cast<std::uint64_t>(kind) * 16 + static_cast<std::uint64_t>(rank)) * 64 + index;
}

}  // namespace

Result explore(const Scenario& scenario, const Mutation& mutation) {
  return Explorer(scenario, mutation).run();
}

void write_data(int accessing_rank, Data kind, int rank, std::size_t index, std::uint64_t value) {
  Location& location = explorer->location(key_of(kind, rank, index));
  const auto self = static_cast<std::size_t>(accessing_rank);
  const View& view = explorer->current().view;
  require(!location.written || location.writer == self || view.clocks[location.writer] >= location.written_at,
          "a rank overwrites data that another rank writes at the same time");
  for (std::size_t reader = 0; reader < kThreads; ++reader) {
    require(reader == self || view.clocks[reader] >= location.read_at[reader],
            "a rank overwrites data that another rank reads");
  }
  location = Location{.value = value, .writer = self, .written_at = view.clocks[self], .read_at = {}, .written = true};
}

std::uint64_t read_data(int accessing_rank, Data kind, int rank, std::size_t index) {
  Location& location = explorer->location(key_of(kind, rank, index));
  const auto self = static_cast<std::size_t>(accessing_rank);
  const View& view = explorer->current().view;
  require(location.written, "a rank reads data that no rank has written");
  require(location.writer == self || view.clocks[location.writer] >= location.written_at,
          "a rank reads data that may not be visible yet");
  location.read_at[self] = view.clocks[self];
  return location.value;
}

void require(bool holds, const char* what) {
  if (!holds) explorer->violate(what);
}

}  // namespace ddprun::trainer::collectives::model
