// One callable made of several, for std::visit: std::visit(Overloaded{[](const A&) {...}, [](const B&) {...}}, variant).
#pragma once

namespace ddprun {

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};

}  // namespace ddprun
