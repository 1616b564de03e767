// Collects metrics of steps by name until the next progress report. Used by a custom training loop (trainer/library) and by the
// library of the channel (sdk/channel). Pure.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "common/channel/codec.hpp"
#include "common/channel/message.hpp"

namespace ddprun::channel {

class NamedFigures {
 public:
  // The newest value of a name counts. A message holds kMaxFigures names of at most this length: longer names are cut, and
  // further names are dropped.
  static constexpr std::size_t kLongestName = 100;
  void set(std::string name, double value) {
    if (name.size() > kLongestName) name.resize(kLongestName);
    if (by_name_.contains(name) || by_name_.size() < kMaxFigures) by_name_[std::move(name)] = value;
  }
  // loss, lr and samples_per_s have separate fields.
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
