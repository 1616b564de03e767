// Implementation of hello.hpp.
#include "rendezvous/member/hello.hpp"

namespace ddprun::rendezvous {

Hello hello_of(const MemberSettings& settings, const std::string& local_host) {
  Hello hello;
  hello.node = settings.id;
  hello.incarnation = settings.incarnation;
  hello.run = settings.run;
  hello.wanted_group_rank = settings.wanted_group_rank;
  hello.role = settings.role;
  hello.local_world_size = settings.local_world_size;
  hello.hostname = settings.hostname;
  hello.listens = settings.listens;
  if (hello.listens.host.empty()) hello.listens.host = local_host;
  return hello;
}

}  // namespace ddprun::rendezvous
