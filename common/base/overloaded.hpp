// Combines several callables into one for std::visit: std::visit(Overloaded{[](const A&) {...}, Ignored<B, C>{}}, variant). If
// no callable has an `auto` parameter, the compiler reports each alternative of the variant that no callable handles.
#pragma once

namespace ddprun {

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
// C++20 does not require this deduction guide, but clang-tidy 14 does, and it checks these files.
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

// Ignores one alternative of the variant and returns Result().
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
