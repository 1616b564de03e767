// Combines several callables into one, for std::visit: std::visit(Overloaded{[](const A&) {...}, Ignored<B, C>{}}, variant).
// Without a generic part (auto), the compiler reports each alternative of the variant that is not handled.
#pragma once

namespace ddprun {

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
// C++20 deduces this by itself, but clang 14 does not yet, and its clang-tidy reads these files.
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

// Ignores the named alternatives in a visit. The visit's result is then an empty Result.
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
