// Asks the resolver for the addresses of a name without waiting for it: each name on a thread of its own, which nobody joins. A
// resolver that never answers costs that thread and nothing else: neither other names, nor the owner's thread, nor its end.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ddprun {

struct NameAnswer {
  std::vector<std::string> addresses{};  // as numbers, in the resolver's order
  std::string error{};                   // why there are none: "Name or service not known"
};

class NameLookup {
 public:
  using Then = std::function<void(const NameAnswer&)>;
  // Runs a function on the owner's thread, later. Called on other threads, never after the destructor's end.
  using Post = std::function<void(std::function<void()>)>;

  explicit NameLookup(Post post);
  ~NameLookup();
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

  // `then` gets the answer on the owner's thread, if there ever is one. Who asks for a name that is being asked for gets the
  // same answer.
  void ask(const std::string& name, Then then);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace ddprun
