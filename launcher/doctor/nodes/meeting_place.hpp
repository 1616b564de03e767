// Where and how the `ddprun doctor` processes on the nodes of a job connect: with the address, the first node and the token of
// the job itself. A child process of the doctor determines this place, because the lookup of a name or a driver may hang. The
// child sends the place to the doctor as text.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/plan/plan.hpp"

namespace ddprun::doctor {

struct DoctorPlace {
  enum class Lead { kNo, kIfPortIsFree, kYes };  // whether this node is the first node, as in NodeShellSettings
  Lead lead = Lead::kNo;
  std::string host{};  // this machine if empty
  int port = 0;
  std::string local_address{};  // --local-addr in numeric form; may be empty
  int min_nodes = 1;
  int max_nodes = 1;
  int rank = -1;  // --node-rank; -1: not given
  PortRange ports{};
  std::chrono::milliseconds wait{60'000};  // for the other nodes
  bool host_can_resolve = true;            // false: the host is neither an address nor a valid host name
  std::string run_dir{};                   // absolute; may be empty
  std::string token_file{};                // --token-file; may be empty
};

// The time for which a node waits for the others, unless --rdzv-conf contains join_timeout or timeout. A job waits ten minutes,
// but the user of `ddprun doctor` usually waits for its result.
inline constexpr std::chrono::milliseconds kMeetingWait{60'000};

// `wait`: see kMeetingWait. Queries the resolver for the job's address.
DoctorPlace meeting_place_of(const Plan& plan, std::chrono::milliseconds wait);

std::string text_of(const DoctorPlace& place);
std::optional<DoctorPlace> meeting_place_in(std::string_view text);  // the inverse of text_of()

}  // namespace ddprun::doctor
