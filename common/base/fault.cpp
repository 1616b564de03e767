// Implementation of fault.hpp.
#include "common/base/fault.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

class FaultReader {
 public:
  explicit FaultReader(std::string where) : where_(std::move(where)) {}

  Fault read(std::string_view specification, Fault fault) {
    bool kind_read = false;
    std::string_view rest = specification;
    while (true) {
      const std::size_t begin = rest.find_first_not_of(" \t\n");
      if (begin == std::string_view::npos) break;
      rest.remove_prefix(begin);
      const std::string_view word = rest.substr(0, rest.find_first_of(" \t\n"));
      rest.remove_prefix(word.size());
      if (kind_read) {
        read_setting(fault, word);
      } else {
        read_kind(fault, word);
        kind_read = true;
      }
    }
    if (!kind_read) refuse(specification);
    return fault;
  }

 private:
  [[noreturn]] void refuse(std::string_view word) const {
    throw UsageError(where_ + ": '" + std::string(word) +
                     "' is not understood; expected: kill|segv|exit=CODE|oom|nan|hang|loop|stop|flip|device [rank=N|all] "
                     "[step=N] [restart=N|any] "
                     "[phase=joining|step|backward|optimizer|saving|evaluating|exit] [above=SAMPLES, of oom]");
  }

  template <typename Integer>
  Integer number(std::string_view word, std::string_view digits) const {
    Integer value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size() || value < 0) refuse(word);
    return value;
  }

  FaultPhase phase_named(std::string_view word, std::string_view name) const {
    if (name == "joining") return FaultPhase::kJoining;
    if (name == "step") return FaultPhase::kStep;
    if (name == "backward") return FaultPhase::kBackward;
    if (name == "optimizer") return FaultPhase::kOptimizer;
    if (name == "saving") return FaultPhase::kSaving;
    if (name == "evaluating") return FaultPhase::kEvaluating;
    if (name == "exit") return FaultPhase::kExit;
    refuse(word);
  }

  void read_kind(Fault& fault, std::string_view word) const {
    if (word == "kill") {
      fault.kind = FaultKind::kKill;
    } else if (word == "segv") {
      fault.kind = FaultKind::kSegv;
    } else if (word == "oom") {
      fault.kind = FaultKind::kOom;
    } else if (word == "nan") {
      fault.kind = FaultKind::kNan;
    } else if (word == "hang") {
      fault.kind = FaultKind::kHang;
    } else if (word == "loop") {
      fault.kind = FaultKind::kLoop;
    } else if (word == "stop") {
      fault.kind = FaultKind::kStop;
    } else if (word == "flip") {
      fault.kind = FaultKind::kFlip;
    } else if (word == "device") {
      fault.kind = FaultKind::kDevice;
    } else if (word.starts_with("exit=")) {
      fault.kind = FaultKind::kExit;
      fault.exit_code = number<int>(word, word.substr(5));
      if (fault.exit_code > 255) refuse(word);
    } else {
      refuse(word);
    }
  }

  void read_setting(Fault& fault, std::string_view word) const {
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) refuse(word);
    const std::string_view key = word.substr(0, equals);
    const std::string_view value = word.substr(equals + 1);
    if (key == "rank") {
      fault.rank = value == "all" ? std::nullopt : std::optional<int>(number<int>(word, value));
    } else if (key == "step") {
      fault.step = number<std::int64_t>(word, value);
    } else if (key == "restart") {
      fault.restart = value == "any" ? std::nullopt : std::optional<int>(number<int>(word, value));
    } else if (key == "phase") {
      fault.phase = phase_named(word, value);
    } else if (key == "above" && fault.kind == FaultKind::kOom) {
      fault.above = number<std::int64_t>(word, value);
    } else {
      refuse(word);
    }
  }

  std::string where_;
};

}  // namespace

Fault parse_fault(std::string_view specification, const std::string& where) {
  return FaultReader(where).read(specification, {});
}

std::vector<Fault> parse_faults(std::string_view specification, const std::string& where) {
  std::vector<Fault> faults;
  for (std::string_view rest = specification; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(';'));
    if (one.find_first_not_of(" \t\n") != std::string_view::npos)
      faults.push_back(FaultReader(where).read(one, {.restart = std::nullopt}));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
  }
  if (faults.empty()) return {parse_fault(specification, where)};  // throws, since there is no fault
  return faults;
}

}  // namespace ddprun
