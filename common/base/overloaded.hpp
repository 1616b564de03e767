// One callable made of several, for std::visit: std::visit(Overloaded{[](const A&) {...}, [](const B&) {...}}, variant).
#pragma once

namespace ddprun {

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
// C++20 deduces this by itself, but clang 14, whose clang-tidy reads these files, does not yet.
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

}  // namespace ddprun
