// Resolves host names without blocking the caller. A separate detached thread resolves each name. If the resolver never
// answers, only that thread is blocked. Other names, the owner's thread and the end of the process are not delayed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ddprun {

struct NameAnswer {
  std::vector<std::string> addresses{};  // numeric addresses in the resolver's order
  std::string error{};                   // the reason if there is no address, such as "Name or service not known"
};

class NameLookup {
 public:
  using Then = std::function<void(const NameAnswer&)>;
  // A function of the owner, which must run its argument later on the owner's thread. Other threads call it, but not after the
  // destructor of NameLookup has returned.
  using Post = std::function<void(std::function<void()>)>;

  explicit NameLookup(Post post);
  ~NameLookup();
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

  // Resolves `name` and calls `then` with the answer on the owner's thread. If the resolver never answers, `then` is never
  // called. If a lookup of the same name is pending, both callers get its answer.
  void query(const std::string& name, Then then);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace ddprun
