// Resolves names without blocking: each name on a separate detached thread. A resolver that never answers only costs that
// thread: it delays neither other names, nor the owner's thread, nor its end.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ddprun {

struct NameAnswer {
  std::vector<std::string> addresses{};  // numeric, in the resolver's order
  std::string error{};                   // the reason if there are none, such as "Name or service not known"
};

class NameLookup {
 public:
  using Then = std::function<void(const NameAnswer&)>;
  // Runs a function on the owner's thread, later. Other threads call it, never after the destructor has returned.
  using Post = std::function<void(std::function<void()>)>;

  explicit NameLookup(Post post);
  ~NameLookup();
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

  // `then` gets the answer on the owner's thread, if there ever is one. A name with a pending lookup is not looked up again:
  // both callers get the same answer.
  void ask(const std::string& name, Then then);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace ddprun
