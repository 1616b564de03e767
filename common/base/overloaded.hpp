// One callable made of several, for std::visit: std::visit(Overloaded{[](const A&) {...}, Ignored<B, C>{}}, variant). Where no
// part takes anything (auto), the compiler names the alternative of a variant that nobody has thought of.
#pragma once

namespace ddprun {

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
// C++20 deduces this by itself, but clang 14, whose clang-tidy reads these files, does not yet.
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

// The alternatives that a visit passes over, each by its name. The visit's result is then an empty Result.
template <class Result, class Type>
struct IgnoredOne {
  Result operator()(const Type& /*ignored*/) const { return Result(); }
};
template <class Result, class... Types>
struct IgnoredAs : IgnoredOne<Result, Types>... {
  using IgnoredOne<Result, Types>::operator()...;
};
template <class... Types>
using Ignored = IgnoredAs<void, Types...>;

}  // namespace ddprun
