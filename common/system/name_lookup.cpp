#include "common/system/name_lookup.hpp"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "common/system/signal_masked_thread.hpp"

namespace ddprun {
namespace {

NameAnswer resolve_name(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(name.c_str(), nullptr, &hints, &found); error != 0) return {{}, ::gai_strerror(error)};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  NameAnswer answer;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    std::array<char, NI_MAXHOST> text{};
    if (::getnameinfo(one->ai_addr, one->ai_addrlen, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) continue;
    const std::string number = text.data();
    const bool known = std::find(answer.addresses.begin(), answer.addresses.end(), number) != answer.addresses.end();
    if (!known) answer.addresses.push_back(number);
  }
  if (answer.addresses.empty()) answer.error = "the resolver found no address";
  return answer;
}

}  // namespace

// The state that the threads and the NameLookup share. The NameLookup may be destroyed before the threads end, so it does not
// own this state alone.
struct NameLookup::Shared {
  std::mutex mutex;
  Post post;                                      // empty after the NameLookup was destroyed
  std::map<std::string, std::vector<Then>> open;  // callbacks of the pending lookups, by name; used only on the owner's thread
};

NameLookup::NameLookup(Post post) : shared_(std::make_shared<Shared>()) {
  shared_->post = std::move(post);
}

NameLookup::~NameLookup() {
  const std::lock_guard lock(shared_->mutex);
  shared_->post = nullptr;
  shared_->open.clear();
}

void NameLookup::query(const std::string& name, Then then) {
  std::vector<Then>& waiting = shared_->open[name];
  waiting.push_back(std::move(then));
  if (waiting.size() > 1) return;
  const auto deliver = [shared = shared_, name](const NameAnswer& answer) {
    const std::lock_guard lock(shared->mutex);
    if (!shared->post) return;
    shared->post([weak = std::weak_ptr<Shared>(shared), name, answer] {
      const auto owned = weak.lock();
      if (!owned || !owned->post) return;
      const auto node = owned->open.extract(name);
      if (node.empty()) return;
      for (const Then& each : node.mapped()) each(answer);
    });
  };
  try {
    signal_masked_thread([deliver, name] { deliver(resolve_name(name)); }).detach();
  } catch (const std::system_error&) {
    deliver({{}, "no thread could be created for the resolver"});
  }
}

}  // namespace ddprun
