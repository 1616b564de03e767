#include "common/system/local_time.hpp"

#include <ctime>

namespace ddprun {

std::string local_time(std::int64_t time_ns, char between) {
  const std::time_t seconds = static_cast<std::time_t>(time_ns / 1'000'000'000);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  char date[32], time[16];
  std::strftime(date, sizeof date, "%Y-%m-%d", &parts);
  std::strftime(time, sizeof time, "%H:%M:%S", &parts);
  return std::string(date) + between + time;
}

}  // namespace ddprun
