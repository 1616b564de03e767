#include "common/base/fault_injection.hpp"

#include <algorithm>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/numbers.hpp"

namespace ddprun {
namespace {

using Kind = FaultKind;
using Phase = FaultPhase;

constexpr std::pair<std::string_view, Kind> kKinds[] = {
    {"kill", Kind::kKill}, {"segv", Kind::kSegv}, {"oom", Kind::kOom},   {"nan", Kind::kNan},      {"hang", Kind::kHang},
    {"loop", Kind::kLoop}, {"stop", Kind::kStop}, {"flip", Kind::kFlip}, {"device", Kind::kDevice}};
constexpr std::pair<std::string_view, Phase> kPhases[] = {{"joining", Phase::kJoining},   {"step", Phase::kStep},
                                                          {"backward", Phase::kBackward}, {"optimizer", Phase::kOptimizer},
                                                          {"saving", Phase::kSaving},     {"evaluating", Phase::kEvaluating},
                                                          {"exit", Phase::kExit}};

// Removes the first word from `rest` and returns it. The result is empty if `rest` has no word.
std::string_view next_word(std::string_view& rest) {
  constexpr std::string_view kSpace = " \t\n";
  rest.remove_prefix(std::min(rest.find_first_not_of(kSpace), rest.size()));
  const std::string_view word = rest.substr(0, rest.find_first_of(kSpace));
  rest.remove_prefix(word.size());
  return word;
}

class FaultReader {
 public:
  explicit FaultReader(std::string where) : where_(std::move(where)) {}

  Fault read(std::string_view specification, Fault fault) {
    std::string_view rest = specification;
    const std::string_view kind = next_word(rest);
    if (kind.empty()) refuse(specification);
    read_kind(fault, kind);
    for (std::string_view setting; !(setting = next_word(rest)).empty();) read_setting(fault, setting);
    return fault;
  }

 private:
  [[noreturn]] void refuse(std::string_view token) const {
    throw UsageError(where_ + ": cannot parse '" + std::string(token) +
                     "'; expected a fault (kill|segv|exit=CODE|oom|nan|hang|loop|stop|flip|device) and its settings: "
                     "[rank=N|all] [step=N] [restart=N|any] [phase=joining|step|backward|optimizer|saving|evaluating|exit] "
                     "[above=SAMPLES]; above is for oom only");
  }

  template <typename Integer>
  Integer number(std::string_view token, std::string_view digits) const {
    const auto value = exact_number<Integer>(digits);
    if (!value || *value < 0) refuse(token);
    return *value;
  }

  template <class Names>
  auto named(const Names& names, std::string_view token, std::string_view name) const {
    for (const auto& [known, value] : names) {
      if (known == name) return value;
    }
    refuse(token);
  }

  void read_kind(Fault& fault, std::string_view token) const {
    if (!token.starts_with("exit=")) {
      fault.kind = named(kKinds, token, token);
      return;
    }
    fault.kind = FaultKind::kExit;
    fault.exit_code = number<int>(token, token.substr(5));
    if (fault.exit_code > 255) refuse(token);
  }

  void read_setting(Fault& fault, std::string_view token) const {
    const std::size_t equals = token.find('=');
    if (equals == std::string_view::npos) refuse(token);
    const std::string_view key = token.substr(0, equals);
    const std::string_view value = token.substr(equals + 1);
    if (key == "rank") {
      fault.rank = value == "all" ? std::nullopt : std::optional<int>(number<int>(token, value));
    } else if (key == "step") {
      fault.step = number<std::int64_t>(token, value);
    } else if (key == "restart") {
      fault.restart = value == "any" ? std::nullopt : std::optional<int>(number<int>(token, value));
    } else if (key == "phase") {
      fault.phase = named(kPhases, token, value);
    } else if (key == "above" && fault.kind == FaultKind::kOom) {
      fault.above = number<std::int64_t>(token, value);
    } else {
      refuse(token);
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
  if (faults.empty()) return {parse_fault(specification, where)};  // throws UsageError, because the text contains no fault
  return faults;
}

}  // namespace ddprun
