// Implementation of codec.hpp. The JSON of a frame is an object with "type" and the fields of fields.hpp. For keys and values
// of store requests, the JSON contains only the lengths, and the bytes follow the JSON in the same order. Numbers that JSON
// does not support are the strings "nan", "inf" and "-inf". docs/worker-channel.md describes the format for other
// implementations.
#include "common/channel/codec.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>
#include <utility>

#include "common/base/printable.hpp"
#include "common/channel/fields.hpp"

namespace ddprun::channel {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLengthBytes = 4;

std::uint32_t read_length(const char* bytes) {
  std::uint32_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return length;
}

void append_length(std::string& out, std::size_t length) {
  for (std::size_t i = 0; i < kLengthBytes; ++i) out.push_back(static_cast<char>((length >> (8 * i)) & 0xff));
}

std::string name(std::string_view field) {
  return "'" + std::string(field) + "'";
}

void check_size(std::string_view field, std::size_t size, std::size_t limit) {
  if (size <= limit) return;
  throw ProtocolError("field " + name(field) + " has " + std::to_string(size) + " bytes, at most " + std::to_string(limit) +
                      " are allowed");
}

// `what` and `entries` are words for the error message, such as "a request" and "keys".
void check_count(const char* what, std::size_t count, const char* entries, std::size_t limit) {
  if (count <= limit) return;
  throw ProtocolError(std::string(what) + " has " + std::to_string(count) + " " + entries + ", at most " +
                      std::to_string(limit) + " are allowed");
}

Json to_json(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

class Writer {
 public:
  explicit Writer(std::string_view type) { json_["type"] = type; }

  template <class T>
  void operator()(const char* field, const T& value) {
    if constexpr (std::is_enum_v<T>) {
      json_[field] = kNames<T>.at(static_cast<std::size_t>(value));
    } else if constexpr (std::is_same_v<T, std::string>) {
      json_[field] = cut_to(value, kMaxTextBytes);
    } else if constexpr (std::is_same_v<T, double>) {
      json_[field] = to_json(value);
    } else if constexpr (std::is_same_v<T, MetricList>) {
      check_count("a message", value.size(), "metrics", kMaxMetrics);
      Json pairs = Json::array();
      for (const Metric& figure : value)
        pairs.push_back(Json::array({cut_to(figure.name, kMaxTextBytes), to_json(figure.value)}));
      json_[field] = std::move(pairs);
    } else if constexpr (std::is_same_v<T, std::vector<StepTime>>) {
      check_count("a message", value.size(), "step times", kMaxStepTimes);
      Json times = Json::array();
      for (const StepTime& one : value)
        times.push_back(Json::array({one.step, one.steps, one.own_us, one.waiting_us, one.data_us}));
      json_[field] = std::move(times);
    } else {
      json_[field] = value;
    }
  }
  template <class T>
  void operator()(const char* field, const std::optional<T>& value) {
    if (value) (*this)(field, *value);
  }
  template <class T>
  void later(const char* field, const T& value) {
    if (value != T{}) (*this)(field, value);
  }
  void keys(const char* field, const std::vector<std::string>& keys) {
    check_count("a request", keys.size(), "keys", kMaxKeys);
    Json lengths = Json::array();
    for (const std::string& key : keys) {
      check_size(field, key.size(), kMaxKeyBytes);
      lengths.push_back(key.size());
      blobs_.push_back(key);
    }
    json_[field] = std::move(lengths);
  }
  void blob(const char* field, const std::string& value) {
    check_size(field, value.size(), kMaxValueBytes);
    json_[field] = value.size();
    blobs_.push_back(value);
  }

  std::string frame() const {
    const std::string json = json_.dump(-1, ' ', false, Json::error_handler_t::replace);
    check_size("json", json.size(), kMaxJsonBytes);
    std::size_t size = 2 * kLengthBytes + json.size();
    for (const std::string_view blob : blobs_) size += blob.size();
    check_count("a frame", size, "bytes", kMaxFrameBytes);
    std::string out;
    out.reserve(size);
    append_length(out, size - kLengthBytes);
    append_length(out, json.size());
    out += json;
    for (const std::string_view blob : blobs_) out += blob;
    return out;
  }

 private:
  Json json_ = Json::object();
  std::vector<std::string_view> blobs_;  // views into the message, which must outlive this object
};

class Reader {
 public:
  Reader(const Json& json, std::string_view blob) : json_(json), blob_(blob) {}

  template <class T>
  void operator()(const char* field, T& value) {
    read(field, need(field), value);
  }
  template <class T>
  void operator()(const char* field, std::optional<T>& value) {
    const auto found = json_.find(field);
    if (found == json_.end()) return;
    read(field, *found, value.emplace());
  }
  template <class T>
  void later(const char* field, T& value) {
    value = T{};  // the field is missing, because the sender has an older minor version
    const auto found = json_.find(field);
    if (found != json_.end()) read(field, *found, value);
  }
  template <class T>
  void later(const char* field, std::optional<T>& value) {
    value.reset();
    (*this)(field, value);
  }
  void keys(const char* field, std::vector<std::string>& keys) {
    const Json& lengths = need(field);
    if (!lengths.is_array()) wrong(field, "an array of lengths", lengths);
    check_count("a request", lengths.size(), "keys", kMaxKeys);
    keys.reserve(lengths.size());
    for (const Json& length : lengths) keys.push_back(take(field, length, kMaxKeyBytes));
  }
  void blob(const char* field, std::string& value) { value = take(field, need(field), kMaxValueBytes); }

 private:
  [[noreturn]] static void wrong(const char* field, const char* expected, const Json& found) {
    throw ProtocolError("field " + name(field) + ": expected " + expected + ", found " + found.type_name());
  }

  const Json& need(const char* field) {
    const auto found = json_.find(field);
    if (found == json_.end()) throw ProtocolError("field " + name(field) + " is missing");
    return *found;
  }

  template <class T>
  static void read(const char* field, const Json& json, T& value) {
    if constexpr (std::is_enum_v<T>) {
      if (!json.is_string()) wrong(field, "a name", json);
      const auto named = std::ranges::find(kNames<T>, json.get_ref<const std::string&>());
      if (named != kNames<T>.end()) {
        value = static_cast<T>(named - kNames<T>.begin());
        return;
      }
      if constexpr (std::is_same_v<T, Stage>) {
        value = Stage::kSomewhere;  // the sender has a newer minor version, which has added this stage
        return;
      }
      throw ProtocolError("field " + name(field) + " has an unknown value");
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!json.is_boolean()) wrong(field, "true or false", json);
      value = json.get<bool>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!json.is_string()) wrong(field, "a string", json);
      value = json.get_ref<const std::string&>();
    } else if constexpr (std::is_same_v<T, double>) {
      read_double(field, json, value);
    } else if constexpr (std::is_same_v<T, MetricList>) {
      read_metrics(field, json, value);
    } else if constexpr (std::is_same_v<T, std::vector<StepTime>>) {
      read_step_times(field, json, value);
    } else {
      read_integer(field, json, value);
    }
  }

  static void read_double(const char* field, const Json& json, double& value) {
    if (json.is_number()) {
      value = json.get<double>();
    } else if (json == "nan") {
      value = std::numeric_limits<double>::quiet_NaN();
    } else if (json == "inf") {
      value = std::numeric_limits<double>::infinity();
    } else if (json == "-inf") {
      value = -std::numeric_limits<double>::infinity();
    } else {
      wrong(field, "a number", json);
    }
  }

  static void read_metrics(const char* field, const Json& json, MetricList& value) {
    if (!json.is_array()) wrong(field, "an array of names and numbers", json);
    check_count("a message", json.size(), "metrics", kMaxMetrics);
    for (const Json& pair : json) {
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string()) wrong(field, "a name and a number", pair);
      Metric& figure = value.emplace_back();
      figure.name = pair[0].get_ref<const std::string&>();
      read_double(field, pair[1], figure.value);
    }
  }

  static void read_step_times(const char* field, const Json& json, std::vector<StepTime>& value) {
    if (!json.is_array()) wrong(field, "an array of step times", json);
    check_count("a message", json.size(), "step times", kMaxStepTimes);
    for (const Json& numbers : json) {
      if (!numbers.is_array() || numbers.size() < 5) wrong(field, "five numbers for each step", numbers);
      StepTime& one = value.emplace_back();
      std::size_t place = 0;
      for (std::int64_t* const number : {&one.step, &one.steps, &one.own_us, &one.waiting_us, &one.data_us})
        read_integer(field, numbers[place++], *number);
    }
  }

  template <class Integer>
  static void read_integer(const char* field, const Json& json, Integer& value) {
    const bool fits = json.is_number_unsigned() ? std::in_range<Integer>(json.get<std::uint64_t>())
                                                : json.is_number_integer() && std::in_range<Integer>(json.get<std::int64_t>());
    if (!fits) wrong(field, "an integer in range", json);
    value = json.get<Integer>();
  }

  std::string take(const char* field, const Json& length, std::size_t limit) {
    std::uint64_t size = 0;
    read_integer(field, length, size);
    check_size(field, size, limit);
    if (size > blob_.size()) {
      throw ProtocolError("field " + name(field) + " has a declared length of " + std::to_string(size) + " bytes, but only " +
                          std::to_string(blob_.size()) + " are left in the frame");
    }
    std::string bytes(blob_.substr(0, size));
    blob_.remove_prefix(size);
    return bytes;
  }

  const Json& json_;
  std::string_view blob_;
};

template <class Variant>
std::string encode_any(const Variant& message) {
  return std::visit(
      [&](const auto& m) {
        Writer writer(kTypeNames<Variant>.at(message.index()));
        visit_fields(writer, m);
        return writer.frame();
      },
      message);
}

// Decodes the message of this type. Returns nullopt for an unknown type, which a newer minor version may have added.
template <class Variant, std::size_t kIndex = 0>
std::optional<Variant> decode_as(const std::string& type, const Json& json, std::string_view blob) {
  if constexpr (kIndex == std::variant_size_v<Variant>) {
    return std::nullopt;
  } else {
    if (type != kTypeNames<Variant>[kIndex]) return decode_as<Variant, kIndex + 1>(type, json, blob);
    std::variant_alternative_t<kIndex, Variant> message;
    Reader reader(json, blob);
    visit_fields(reader, message);
    return message;
  }
}

// Reads a Hello of a different major version. Returns nullopt if the message has no major version, or the major version of
// this program. Reads only the fields that have the same meaning in all major versions.
std::optional<Hello> hello_of_another_major(const Json& json) {
  const auto integer = [&json](const char* field) {
    const auto found = json.find(field);
    const bool fits = found != json.end() && found->is_number_integer() && std::in_range<int>(found->get<std::int64_t>());
    return fits ? found->get<int>() : -1;
  };
  Hello hello{.protocol = integer("protocol"), .minor = std::max(0, integer("minor"))};
  if (hello.protocol < 0 || hello.protocol == kProtocolMajor) return std::nullopt;
  const auto version = json.find("version");
  if (version != json.end() && version->is_string()) hello.version = version->get_ref<const std::string&>();
  return hello;
}

template <class Variant>
std::optional<Variant> decode(std::string_view text, std::string_view blob) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) throw ProtocolError("the header of a frame is not a JSON object");
  const auto type = json.find("type");
  if (type == json.end() || !type->is_string()) throw ProtocolError("a message has no type");
  if constexpr (std::is_same_v<Variant, FromWorker>) {
    if (*type == "hello")
      if (auto hello = hello_of_another_major(json)) return *std::move(hello);
  }
  return decode_as<Variant>(type->get_ref<const std::string&>(), json, blob);
}

}  // namespace

std::string encode(const FromWorker& message) {
  return encode_any(message);
}
std::string encode(const FromAgent& message) {
  return encode_any(message);
}

void Decoder::feed(std::span<const std::byte> bytes) {
  // Removes the messages that next_frame() has returned. Then the buffer contains at most one frame and the bytes that arrived
  // together with its end. The remaining bytes are moved only if they fill less than half of the buffer, so the cost per byte
  // is constant.
  if (consumed_ == buffer_.size()) {
    constexpr std::size_t kKeptCapacity = 256u << 10;
    if (buffer_.capacity() > kKeptCapacity) std::string().swap(buffer_);  // frees the memory after a large value
    buffer_.clear();
    consumed_ = 0;
  } else if (consumed_ > buffer_.size() / 2) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
  }
  buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::optional<Decoder::Frame> Decoder::next_frame() {
  const std::string_view rest = std::string_view(buffer_).substr(consumed_);
  if (rest.size() < kLengthBytes) return std::nullopt;
  const std::size_t length = read_length(rest.data());
  if (length < kLengthBytes || length > kMaxFrameBytes - kLengthBytes) {
    throw ProtocolError("expected a frame of " + std::to_string(kLengthBytes) + " to " +
                        std::to_string(kMaxFrameBytes - kLengthBytes) + " bytes, found a declared length of " +
                        std::to_string(length));
  }
  if (rest.size() < 2 * kLengthBytes) return std::nullopt;
  const std::size_t json_length = read_length(rest.data() + kLengthBytes);
  if (json_length > length - kLengthBytes || json_length > kMaxJsonBytes) {
    throw ProtocolError("a frame of " + std::to_string(length) + " bytes declares a JSON part of " +
                        std::to_string(json_length) + " bytes, which is too long");
  }
  if (rest.size() < kLengthBytes + length) return std::nullopt;
  consumed_ += kLengthBytes + length;
  const std::string_view body = rest.substr(2 * kLengthBytes, length - kLengthBytes);
  return Frame{body.substr(0, json_length), body.substr(json_length)};
}

std::optional<FromWorker> Decoder::next_from_worker() {
  while (const std::optional<Frame> frame = next_frame()) {
    if (auto message = decode<FromWorker>(frame->json, frame->blob)) return message;
  }
  return std::nullopt;
}

std::optional<FromAgent> Decoder::next_from_agent() {
  while (const std::optional<Frame> frame = next_frame()) {
    if (auto message = decode<FromAgent>(frame->json, frame->blob)) return message;
  }
  return std::nullopt;
}

}  // namespace ddprun::channel
