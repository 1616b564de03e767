#include "trainer/layout/read_division.hpp"

#include "common/base/check.hpp"

namespace ddprun::trainer {
namespace {

// Returns `members`, rounded up to an even number. With an odd number, one place has no member, and the partner of that place
// has no exchange in the round.
int places_for(int members) {
  return members + members % 2;
}

}  // namespace

ByteRange part_of(std::int64_t bytes, int member, int members) {
  check(bytes >= 0 && member >= 0 && member < members, "a part was requested for a rank that does not take part");
  const std::int64_t size = bytes / members, larger = bytes % members;
  const auto begin_of = [&](std::int64_t of) { return of * size + (of < larger ? of : larger); };
  return {.begin = begin_of(member), .end = begin_of(member + 1)};
}

int exchange_rounds(int members) {
  return members > 1 ? places_for(members) - 1 : 0;
}

// The circle method: in each round, the sum of the two numbers of a pair is the round modulo an odd number. The member whose
// double is the round would be its own partner, so its partner is the last place.
std::optional<int> partner_in(int round, int member, int members) {
  check(round >= 0 && round < exchange_rounds(members) && member >= 0 && member < members, "a round does not exist");
  const int last = places_for(members) - 1;
  int partner = 0;
  if (member == last) {
    partner = round * ((last + 1) / 2) % last;  // (last + 1) / 2 is the inverse of 2 modulo `last`
  } else {
    partner = (round - member + last) % last;
    if (partner == member) partner = last;
  }
  return partner < members ? std::optional(partner) : std::nullopt;
}

}  // namespace ddprun::trainer
