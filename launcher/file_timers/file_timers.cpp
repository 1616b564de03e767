#include "launcher/file_timers/file_timers.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ddprun {

std::optional<TimerRequest> parse_timer_request(std::string_view line) {
  const auto document = nlohmann::json::parse(line, nullptr, false);
  if (!document.is_object()) return std::nullopt;
  const auto pid = document.find("pid"), scope = document.find("scope_id"), expires = document.find("expiration_time"),
             signal = document.find("signal");
  const auto end = document.end();
  if (pid == end || !pid->is_number_integer() || scope == end || !scope->is_string() || expires == end ||
      !expires->is_number() || signal == end || !signal->is_number_integer()) {
    return std::nullopt;
  }
  return TimerRequest{pid->get<std::int64_t>(), scope->get<std::string>(), expires->get<double>(), signal->get<int>()};
}

void FileTimers::on(const TimerRequest& request) {
  const auto key = std::pair(request.pid, request.scope);
  if (request.expires < 0) {
    timers_.erase(key);
  } else {
    timers_[key] = request;
  }
}

std::optional<double> FileTimers::next() const {
  std::optional<double> first;
  for (const auto& [key, request] : timers_) first = first ? std::min(*first, request.expires) : request.expires;
  return first;
}

std::vector<TimerRequest> FileTimers::take_overdue(double now) {
  std::map<std::int64_t, std::optional<TimerRequest>> worst;  // the earliest overdue timer with a signal, by pid
  for (const auto& [key, request] : timers_) {
    if (request.expires > now) continue;
    auto& first = worst[request.pid];
    if (request.signal > 0 && (!first || request.expires < first->expires)) first = request;
  }
  std::erase_if(timers_, [&](const auto& timer) { return worst.contains(timer.first.first); });
  std::vector<TimerRequest> overdue;
  for (const auto& [pid, request] : worst) {
    if (request) overdue.push_back(*request);
  }
  return overdue;
}

}  // namespace ddprun
