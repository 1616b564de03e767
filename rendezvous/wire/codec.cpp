// Implementation of codec.hpp: a writer and a reader that walk fields.hpp. Numbers are little endian and have the width of
// their type. Texts and byte strings follow a length of 4 bytes, lists a count of 4 bytes.
#include "rendezvous/wire/codec.hpp"

#include <array>
#include <bit>
#include <chrono>
#include <concepts>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "rendezvous/wire/fields.hpp"

namespace ddprun::rendezvous {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers go as they lie in memory");

constexpr std::size_t kLengthBytes = 4;             // the length before a text, a byte string or a list
constexpr std::size_t kFrameOfARelease = 512;       // bytes; nearly all frames of a round are shorter
constexpr std::uint8_t kFirstOfCoordinator = 0x80;  // types of the two directions differ, so that a reflected frame is refused

template <class T>
concept Scalar = std::is_integral_v<T> || std::is_enum_v<T>;

std::string about(const char* field) {
  return std::string("field '") + field + "'";
}

void check_size(const char* field, std::size_t size, std::size_t limit) {
  if (size <= limit) return;
  throw ProtocolError(about(field) + " has a length of " + std::to_string(size) + ", at most " + std::to_string(limit) +
                      " is allowed");
}

// Cuts between two UTF-8 characters, not within one.
std::string_view cut(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return text;
  std::size_t end = limit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

template <class Element>
constexpr std::size_t list_limit() {
  if constexpr (std::is_same_v<Element, FailedRound>) return kRoundsRemembered;
  return std::is_same_v<Element, Successor> ? kSuccessors : channel::kMaxKeys;
}

class Writer {
 public:
  explicit Writer(std::uint8_t type) {
    out_.reserve(kFrameOfARelease);
    out_.push_back(static_cast<char>(type));
  }

  template <class T>
  void operator()(const char* field, const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      number(static_cast<std::uint8_t>(value ? 1 : 0));
    } else if constexpr (std::is_enum_v<T>) {
      number(static_cast<std::uint8_t>(value));
    } else if constexpr (std::is_integral_v<T>) {
      number(static_cast<std::make_unsigned_t<T>>(value));
    } else if constexpr (requires { std::tuple_size<T>::value; }) {
      for (const auto& element : value) (*this)(field, element);
    } else if constexpr (std::is_same_v<T, std::chrono::nanoseconds>) {
      number(static_cast<std::uint64_t>(value.count()));
    } else {
      (void)field;
      visit_fields(*this, value);
    }
  }
  void text(const char*, const std::string& value, std::size_t limit) { raw(cut(value, limit)); }
  void bytes(const char* field, const std::string& value, std::size_t limit) {
    check_size(field, value.size(), limit);
    raw(value);
  }
  template <class Element>
  void list(const char* field, const std::vector<Element>& elements) {
    check_size(field, elements.size(), list_limit<Element>());
    number(static_cast<std::uint32_t>(elements.size()));
    for (const Element& element : elements) {
      if constexpr (std::is_same_v<Element, std::string>) {
        bytes(field, element, channel::kMaxKeyBytes);
      } else {
        visit_fields(*this, element);
      }
    }
  }
  void skip_rest() {}

  std::string frame() {
    check_size("frame", out_.size(), kMaxFrameBytes);
    return std::move(out_);
  }

 private:
  template <std::unsigned_integral T>
  void number(T value) {
    const auto bytes = std::bit_cast<std::array<char, sizeof(T)>>(value);
    out_.append(bytes.data(), bytes.size());
  }
  void raw(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    out_ += value;
  }
  std::string out_;
};

class Reader {
 public:
  explicit Reader(std::string_view rest) : rest_(rest) {}

  template <class T>
  void operator()(const char* field, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = limited<std::uint8_t>(field, 1) != 0;
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(limited<std::uint8_t>(field, static_cast<std::uint8_t>(kLast<T>)));
    } else if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(number<std::make_unsigned_t<T>>(field));
    } else if constexpr (requires { std::tuple_size<T>::value; }) {
      for (auto& element : value) (*this)(field, element);
    } else if constexpr (std::is_same_v<T, std::chrono::nanoseconds>) {
      value = std::chrono::nanoseconds(static_cast<std::int64_t>(number<std::uint64_t>(field)));
    } else {
      visit_fields(*this, value);
    }
  }
  void text(const char* field, std::string& value, std::size_t limit) { bytes(field, value, limit); }
  void bytes(const char* field, std::string& value, std::size_t limit) {
    const std::uint32_t size = number<std::uint32_t>(field);
    check_size(field, size, limit);
    value = take(field, size);
  }
  template <class Element>
  void list(const char* field, std::vector<Element>& elements) {
    const std::uint32_t count = number<std::uint32_t>(field);
    check_size(field, count, list_limit<Element>());
    check_size(field, count, rest_.size() / kLengthBytes);  // each entry has at least a length; avoids a useless allocation
    elements.reserve(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<Element, std::string>) {
        bytes(field, elements.emplace_back(), channel::kMaxKeyBytes);
      } else {
        visit_fields(*this, elements.emplace_back());
      }
    }
  }
  void skip_rest() { rest_ = {}; }
  // Throws if bytes are left over: otherwise an unknown field would be lost silently.
  void finish() const {
    if (!rest_.empty()) throw ProtocolError(std::to_string(rest_.size()) + " bytes are left over behind a message");
  }

 private:
  std::string_view take(const char* field, std::size_t size) {
    if (size > rest_.size()) refuse_short_frame(field, size);
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  [[noreturn]] void refuse_short_frame(const char* field, std::size_t size) const {
    throw ProtocolError(about(field) + " should have " + std::to_string(size) + " bytes, the frame has " +
                        std::to_string(rest_.size()) + " left");
  }
  template <std::unsigned_integral T>
  T number(const char* field) {
    T value = 0;
    std::memcpy(&value, take(field, sizeof(T)).data(), sizeof(T));
    return value;
  }
  template <std::unsigned_integral T>
  T limited(const char* field, T largest) {
    const T value = number<T>(field);
    if (value > largest) {
      throw ProtocolError(about(field) + " is " + std::to_string(value) + ", at most " + std::to_string(largest) +
                          " is known here");
    }
    return value;
  }
  std::string_view rest_;
};

template <class Variant>
std::string encode_any(const Variant& message, std::uint8_t first_type) {
  return std::visit(
      [&](const auto& m) {
        Writer writer(static_cast<std::uint8_t>(first_type + message.index()));
        visit_fields(writer, m);
        return writer.frame();
      },
      message);
}

template <class Variant, std::size_t kIndex = 0>
Variant decode_as(std::size_t index, std::string_view body) {
  if constexpr (kIndex == std::variant_size_v<Variant>) {
    throw ProtocolError("a message of a type that is not known here");
  } else {
    if (index != kIndex) return decode_as<Variant, kIndex + 1>(index, body);
    std::variant_alternative_t<kIndex, Variant> message;
    Reader reader(body);
    visit_fields(reader, message);
    reader.finish();
    return message;
  }
}

template <class Variant>
Variant decode_any(std::string_view frame, std::uint8_t first_type) {
  if (frame.empty()) throw ProtocolError("an empty frame");
  const auto type = static_cast<unsigned char>(frame.front());
  if (type < first_type) throw ProtocolError("a message of a type that is not known here");
  return decode_as<Variant>(static_cast<std::size_t>(type - first_type), frame.substr(1));
}

}  // namespace

std::string encode(const FromMember& message) {
  std::string frame = encode_any(message, 0);
  const auto* const hello = std::get_if<Hello>(&message);
  if (hello == nullptr || frame.size() <= kMaxHelloBytes) return frame;
  const std::size_t excess = frame.size() - kMaxHelloBytes;
  const std::string_view why = cut(hello->ending.why, kMaxTextBytes);
  Hello shorter = *hello;
  shorter.ending.why = cut(why, why.size() - std::min(why.size(), excess));
  return encode_any(FromMember{std::move(shorter)}, 0);
}
std::string encode(const FromCoordinator& message) {
  return encode_any(message, kFirstOfCoordinator);
}
FromMember decode_from_member(std::string_view frame) {
  return decode_any<FromMember>(frame, 0);
}
FromCoordinator decode_from_coordinator(std::string_view frame) {
  return decode_any<FromCoordinator>(frame, kFirstOfCoordinator);
}

}  // namespace ddprun::rendezvous
