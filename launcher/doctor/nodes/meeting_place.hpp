// Where and how the doctors of a job meet: at the address, with the roles and the token of the job itself. A child process of
// the doctor finds it, since names may not resolve and drivers may hang. It sends it to the doctor as text.
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
  std::string host{};  // this machine, if the text is empty
  int port = 0;
  std::string local_address{};  // --local-addr in numeric form; may be empty
  int min_nodes = 1;
  int max_nodes = 1;
  int rank = -1;  // --node-rank; -1: not given
  PortRange ports{};
  std::chrono::milliseconds wait{60'000};  // for the other nodes
  bool host_can_resolve = true;            // false: the host is neither an address nor a possible name
  std::string run_dir{};                   // absolute; may be empty
  std::string token_file{};                // --token-file; may be empty
};

// How long the doctors wait for each other, unless --rdzv-conf contains join_timeout or timeout. A job waits ten minutes, but a
// user usually waits for the result of the doctor.
inline constexpr std::chrono::milliseconds kMeetingWait{60'000};

// `wait`: see kMeetingWait. Queries the resolver for the job's address.
DoctorPlace meeting_place_of(const Plan& plan, std::chrono::milliseconds wait);

std::string text_of(const DoctorPlace& place);
std::optional<DoctorPlace> meeting_place_in(std::string_view text);  // the inverse of text_of()

}  // namespace ddprun::doctor
