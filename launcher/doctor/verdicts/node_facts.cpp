#include "launcher/doctor/verdicts/node_facts.hpp"

#include <string_view>
#include <utility>

namespace ddprun::doctor {
namespace {

constexpr std::string_view kPrefix = "fact:";

}  // namespace

Check fact(const std::string& name, std::string value) {
  return {.check = std::string(kPrefix) + name, .verdict = CheckVerdict::kOk, .found = std::move(value), .remedy = ""};
}

NodeFacts take_facts(Checks& checks) {
  NodeFacts facts;
  std::erase_if(checks, [&](Check& check) {
    if (!check.check.starts_with(kPrefix)) return false;
    facts[check.check.substr(kPrefix.size())] = std::move(check.found);
    return true;
  });
  return facts;
}

}  // namespace ddprun::doctor
