// Implementation of settings.hpp.
#include "rendezvous/member/settings.hpp"

namespace ddprun::rendezvous {

Hello hello_of(const MemberSettings& settings) {
  Hello hello;
  hello.node = settings.id;
  hello.incarnation = settings.incarnation;
  hello.run = settings.run;
  hello.wanted_group_rank = settings.wanted_group_rank;
  hello.role = settings.role;
  hello.local_world_size = settings.local_world_size;
  hello.hostname = settings.hostname;
  hello.listens = settings.listens;
  hello.farewell_port = settings.farewell_port;
  hello.farewell_key = settings.farewell_key;
  hello.arbiter = settings.arbiter;
  hello.run_directory = settings.run_directory;
  hello.command = settings.command;
  hello.min_nodes = settings.min_nodes;
  hello.max_nodes = settings.max_nodes;
  return hello;
}

}  // namespace ddprun::rendezvous
