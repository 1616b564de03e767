// Implementation of codec.hpp. A writer and a reader visit the fields that fields.hpp lists, in the same order. Numbers are
// little endian and have the width of their type. A text or byte string is preceded by its length in 4 bytes, and a list by its
// count in 4 bytes.
#include "rendezvous/wire/codec.hpp"

#include <array>
#include <bit>
#include <chrono>
#include <concepts>
#include <cstring>
#include <type_traits>
#include <utility>

#include "common/base/printable.hpp"
#include "rendezvous/wire/fields.hpp"

namespace ddprun::rendezvous {
namespace {

static_assert(std::endian::native == std::endian::little,
              "expected a little-endian machine: numbers are copied from memory to frames, and frames are little-endian");

constexpr std::size_t kLengthBytes = 4;        // size of the length before a text, or of the count before a list
constexpr std::size_t kUsualFrameBytes = 512;  // initial capacity; nearly all frames fit into it
constexpr std::uint8_t kFirstCoordinatorType =
    0x80;  // The two directions use different message types, so a frame that is reflected to its sender is invalid.

template <class T>
concept Scalar = std::is_integral_v<T> || std::is_enum_v<T>;

void check_size(std::size_t size, std::size_t limit) {
  if (size <= limit) return;
  throw ProtocolError("a field or frame has a length of " + std::to_string(size) + ", at most " + std::to_string(limit) +
                      " is allowed");
}

template <class Element>
constexpr std::size_t list_limit() {
  if constexpr (std::is_same_v<Element, FailedRound>) return kRoundsRemembered;
  return std::is_same_v<Element, Successor> ? kSuccessors : channel::kMaxKeys;
}

class Writer {
 public:
  explicit Writer(std::uint8_t type) {
    out_.reserve(kUsualFrameBytes);
    out_.push_back(static_cast<char>(type));
  }

  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }
  void text(const std::string& value, std::size_t limit) { raw(cut_to(value, limit)); }
  void bytes(const std::string& value, std::size_t limit) {
    check_size(value.size(), limit);
    raw(value);
  }
  template <class Element>
  void list(const std::vector<Element>& elements) {
    check_size(elements.size(), list_limit<Element>());
    number(static_cast<std::uint32_t>(elements.size()));
    for (const Element& element : elements) {
      if constexpr (std::is_same_v<Element, std::string>) {
        bytes(element, channel::kMaxKeyBytes);
      } else {
        visit_fields(*this, element);
      }
    }
  }
  void skip_rest() {}

  std::string frame() {
    check_size(out_.size(), kMaxFrameBytes);
    return std::move(out_);
  }

 private:
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      number(static_cast<std::uint8_t>(value ? 1 : 0));
    } else if constexpr (std::is_enum_v<T>) {
      number(static_cast<std::uint8_t>(value));
    } else if constexpr (std::is_integral_v<T>) {
      number(static_cast<std::make_unsigned_t<T>>(value));
    } else if constexpr (requires { std::tuple_size<T>::value; }) {
      for (const auto& element : value) put(element);
    } else if constexpr (std::is_same_v<T, std::chrono::nanoseconds>) {
      number(static_cast<std::uint64_t>(value.count()));
    } else {
      visit_fields(*this, value);
    }
  }
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

  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  void text(std::string& value, std::size_t limit) { bytes(value, limit); }
  void bytes(std::string& value, std::size_t limit) {
    const auto size = number<std::uint32_t>();
    check_size(size, limit);
    value = take(size);
  }
  template <class Element>
  void list(std::vector<Element>& elements) {
    const auto count = number<std::uint32_t>();
    check_size(count, list_limit<Element>());
    // Each entry has at least kLengthBytes, so a larger count is invalid. The count is checked before memory is allocated.
    check_size(count, rest_.size() / kLengthBytes);
    elements.reserve(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<Element, std::string>) {
        bytes(elements.emplace_back(), channel::kMaxKeyBytes);
      } else {
        visit_fields(*this, elements.emplace_back());
      }
    }
  }
  void skip_rest() { rest_ = {}; }
  // Throws if the frame contains further bytes. Without this check, an unknown field would be ignored.
  void finish() const {
    if (!rest_.empty())
      throw ProtocolError("expected the end of the message, found " + std::to_string(rest_.size()) + " more bytes");
  }

 private:
  template <class T>
  void get(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = limited<std::uint8_t>(1) != 0;
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(limited<std::uint8_t>(static_cast<std::uint8_t>(kLast<T>)));
    } else if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(number<std::make_unsigned_t<T>>());
    } else if constexpr (requires { std::tuple_size<T>::value; }) {
      for (auto& element : value) get(element);
    } else if constexpr (std::is_same_v<T, std::chrono::nanoseconds>) {
      value = std::chrono::nanoseconds(static_cast<std::int64_t>(number<std::uint64_t>()));
    } else {
      visit_fields(*this, value);
    }
  }
  std::string_view take(std::size_t size) {
    if (size > rest_.size()) {
      throw ProtocolError("a field needs " + std::to_string(size) + " bytes, but only " + std::to_string(rest_.size()) +
                          " are left in the frame");
    }
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  template <std::unsigned_integral T>
  T number() {
    T value = 0;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  template <std::unsigned_integral T>
  T limited(T largest) {
    const T value = number<T>();
    if (value > largest) {
      throw ProtocolError("a field is " + std::to_string(value) + ", at most " + std::to_string(largest) + " is supported");
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
    throw ProtocolError("a message of an unknown type");
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
  if (type < first_type) throw ProtocolError("a message of an unknown type");
  return decode_as<Variant>(static_cast<std::size_t>(type - first_type), frame.substr(1));
}

}  // namespace

std::string encode(const FromMember& message) {
  std::string frame = encode_any(message, 0);
  const auto* const hello = std::get_if<Hello>(&message);
  if (hello == nullptr || frame.size() <= kMaxHelloBytes) return frame;
  const std::size_t excess = frame.size() - kMaxHelloBytes;
  const std::string_view why = cut_to(hello->ending.why, kMaxTextBytes);
  Hello shorter = *hello;
  shorter.ending.why = cut_to(why, why.size() - std::min(why.size(), excess));
  return encode_any(FromMember{std::move(shorter)}, 0);
}
std::string encode(const FromCoordinator& message) {
  return encode_any(message, kFirstCoordinatorType);
}
FromMember decode_from_member(std::string_view frame) {
  return decode_any<FromMember>(frame, 0);
}
FromCoordinator decode_from_coordinator(std::string_view frame) {
  return decode_any<FromCoordinator>(frame, kFirstCoordinatorType);
}

}  // namespace ddprun::rendezvous
