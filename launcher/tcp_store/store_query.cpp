#include "launcher/tcp_store/store_query.hpp"

#include <array>
#include <cstring>
#include <utility>

namespace ddprun::script_store {
namespace {

enum class Field { kNone, kKey, kValue, kKeys, kPairs, kNumber32, kNumber64 };
using Shape = std::array<Field, 3>;  // up to three fields; the others are kNone

// The fields of each kind of query, in the order of QueryKind.
constexpr std::array kShapes{
    Shape{Field::kNumber32},
    Shape{Field::kKey, Field::kValue},
    Shape{Field::kKey, Field::kValue, Field::kValue},
    Shape{Field::kKey},
    Shape{Field::kKey, Field::kNumber64},
    Shape{Field::kKeys},
    Shape{Field::kKeys},
    Shape{},
    Shape{Field::kKey},
    Shape{Field::kKey, Field::kValue},
    Shape{Field::kKeys},
    Shape{Field::kPairs},
    Shape{},
    Shape{Field::kNumber32},
    Shape{Field::kKey, Field::kValue},
    Shape{Field::kKey},
    Shape{Field::kKey},
    Shape{},
    Shape{Field::kKey, Field::kNumber64},
};
static_assert(kShapes.size() == static_cast<std::size_t>(QueryKind::kBarrier) + 1);

// Reads the fields of a query, one after another. A function that cannot read its field returns false. In that case, either
// the query is incomplete and needs at least needed() bytes, or it is refused, and refusal() has the reason.
class Reader {
 public:
  Reader(std::string_view bytes, const Limits& limits) : bytes_(bytes), limits_(limits) {}

  std::size_t at() const { return at_; }
  std::size_t needed() const { return needed_; }
  const std::string& refusal() const { return refusal_; }

  template <class Number>
  bool number(Number& number) {
    std::string_view raw;
    if (!take(sizeof number, raw)) return false;
    std::memcpy(&number, raw.data(), sizeof number);
    return true;
  }

  bool key(Query& query) { return text("a key", limits_.key_bytes, query.keys); }
  bool value(Query& query) { return text("a value", limits_.value_bytes, query.values); }

  // Reads a number N and then N keys. If `with_values` is true, a value follows each key.
  bool list(Query& query, bool with_values) {
    std::uint64_t count = 0;
    if (!number(count)) return false;
    if (count > limits_.keys_of_a_query) return refuse(std::to_string(count) + " keys", limits_.keys_of_a_query);
    for (std::uint64_t i = 0; i < count; ++i) {
      if (!key(query) || (with_values && !value(query))) return false;
    }
    return true;
  }

 private:
  bool take(std::size_t size, std::string_view& taken) {
    needed_ = at_ + size;
    if (needed_ > limits_.query_bytes) return refuse("a query of " + std::to_string(needed_) + " bytes", limits_.query_bytes);
    if (needed_ > bytes_.size()) return false;
    taken = bytes_.substr(at_, size);
    at_ = needed_;
    return true;
  }

  bool text(const char* what, std::size_t limit, std::vector<std::string_view>& texts) {
    std::uint64_t size = 0;
    if (!number(size)) return false;
    if (size > limit) return refuse(what + (" of " + std::to_string(size)) + " bytes", limit);
    std::string_view taken;
    if (!take(size, taken)) return false;
    texts.push_back(taken);
    return true;
  }

  bool refuse(const std::string& what, std::size_t limit) {
    refusal_ = what + ", and at most " + std::to_string(limit) + " are allowed";
    return false;
  }

  std::string_view bytes_;
  const Limits& limits_;
  std::size_t at_ = 0;
  std::size_t needed_ = 0;
  std::string refusal_;
};

bool read_field(Reader& reader, Field field, Query& query) {
  std::uint32_t small = 0;
  switch (field) {
    case Field::kNone:
      return true;
    case Field::kKey:
      return reader.key(query);
    case Field::kValue:
      return reader.value(query);
    case Field::kKeys:
      return reader.list(query, false);
    case Field::kPairs:
      return reader.list(query, true);
    case Field::kNumber32:
      if (!reader.number(small)) return false;
      query.number = small;
      return true;
    case Field::kNumber64:
      return reader.number(query.number);
  }
  return false;
}

}  // namespace

ReadQuery read_query(std::string_view bytes, const Limits& limits) {
  Reader reader(bytes, limits);
  std::uint8_t kind = 0;
  if (!reader.number(kind)) return {.query = std::nullopt, .bytes = reader.needed()};
  if (kind >= kShapes.size()) {
    return {.query = std::nullopt, .bytes = 0, .refusal = "query " + std::to_string(kind) + " is not known"};
  }
  Query query{.kind = static_cast<QueryKind>(kind)};
  for (const Field field : kShapes[kind]) {
    if (!read_field(reader, field, query)) {
      return {.query = std::nullopt, .bytes = reader.needed(), .refusal = reader.refusal()};
    }
  }
  return {.query = std::move(query), .bytes = reader.at()};
}

}  // namespace ddprun::script_store
