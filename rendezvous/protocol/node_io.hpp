// The events and actions that pass unchanged between the shell of a node and its state machines: connections, messages, and the
// end of the job. The event and action lists of member.hpp, coordinator.hpp and node.hpp contain these types, so that the
// events and actions pass through the state machines without conversion. All types are plain values.
#pragma once

#include <string>

#include "rendezvous/protocol/job_end.hpp"
#include "rendezvous/protocol/link.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

namespace node_event {
struct LinkOpened {  // a connection that this node dialed or accepted is open
  LinkId link = 0;
  std::string local_host{};  // the local address of the socket if this node dialed, or "" if it did not
  std::string own_host{};    // the new value of MemberSettings::own_host; "" if unchanged
};
struct LinkClosed {  // the connection was closed, or could not be opened
  LinkId link = 0;
  bool may_return = false;  // true after a network failure: the process at the other end might still be running
};
struct FromDialler {  // a message received over a connection that this node accepted
  LinkId link = 0;
  FromMember message{};
};
struct FromListener {  // a message received over a connection that this node dialed
  LinkId link = 0;
  FromCoordinator message{};
};
struct Tick {};
}  // namespace node_event

namespace node_action {
struct Dial {  // open a connection; the result is the event LinkOpened or LinkClosed
  LinkId link = 0;
  Address address{};
};
struct ToDialler {  // send a message over a connection that this node accepted
  LinkId link = 0;
  FromCoordinator message{};
};
struct ToListener {  // send a message over a connection that this node dialed
  LinkId link = 0;
  FromMember message{};
};
struct CloseLink {  // close a connection after the pending messages are sent; the event LinkClosed may not follow
  LinkId link = 0;
};
// A worker's request to the job's store. The shell executes it and replies with StoreAnswered. If the link is kSelfLink, the
// worker is on this node.
struct ServeStore {
  LinkId link = 0;
  StoreQuery query{};
};
struct Finish : JobEnd {  // all workers have ended, and the agent can exit
  enum class End {
    kOver,     // the job has ended
    kLeft,     // this node has left the job, and the other nodes continue
    kGivenUp,  // this node found no coordinator in time, or the coordinator refused it
  };
  End end = End::kOver;
};
}  // namespace node_action

}  // namespace ddprun::rendezvous
