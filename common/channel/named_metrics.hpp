// Collects metrics of steps by name until the next Progress message. Custom training loops (trainer/library) and the channel
// library (sdk/channel) use it. The code is pure: no I/O, no clock.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "common/channel/codec.hpp"
#include "common/channel/message.hpp"

namespace ddprun::channel {

class NamedMetrics {
 public:
  // Sets the metric's value; a later value replaces an earlier one. A name is truncated to kLongestName bytes. Names after the
  // first kMaxMetrics are dropped, because a message cannot contain more.
  static constexpr std::size_t kLongestName = 100;
  void set(std::string name, double value) {
    if (name.size() > kLongestName) name.resize(kLongestName);
    if (by_name_.contains(name) || by_name_.size() < kMaxMetrics) by_name_[std::move(name)] = value;
  }
  // Copies all metrics to the message. loss, lr and samples_per_s are separate fields of the message.
  void add_to(Progress& message) const {
    for (const auto& [name, value] : by_name_) {
      if (name == "loss") {
        message.loss = value;
      } else if (name == "lr") {
        message.lr = value;
      } else if (name == "samples_per_s") {
        message.samples_per_s = value;
      } else {
        message.figures.push_back({name, value});
      }
    }
  }
  void clear() { by_name_.clear(); }

 private:
  std::map<std::string, double> by_name_;
};

}  // namespace ddprun::channel
