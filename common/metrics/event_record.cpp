#include "common/metrics/event_record.hpp"

#include <bit>
#include <boost/crc.hpp>

namespace ddprun {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

constexpr std::uint64_t kSessionStart = 1;  // SessionLog.SessionStatus.START

template <typename T>
std::string raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(0x80 | (value & 0x7F));
  return bytes += static_cast<char>(value);
}

// A field of a message: its number and the kind of its value, then the value.
enum class Wire : std::uint64_t { kVarint = 0, kDouble = 1, kBytes = 2, kFloat = 5 };
std::string key(std::uint64_t number, Wire wire) {
  return varint(number << 3 | static_cast<std::uint64_t>(wire));
}
std::string number_field(std::uint64_t number, std::uint64_t value) {
  return key(number, Wire::kVarint) + varint(value);
}
std::string double_field(std::uint64_t number, double value) {
  return key(number, Wire::kDouble) + raw(value);
}
std::string float_field(std::uint64_t number, float value) {
  return key(number, Wire::kFloat) + raw(value);
}
std::string bytes_field(std::uint64_t number, std::string_view bytes) {
  return key(number, Wire::kBytes) + varint(bytes.size()) + std::string(bytes);
}

// The fields of Event.
std::string wall_time_field(double wall_time) {
  return double_field(1, wall_time);
}
std::string step_field(std::int64_t step) {
  return number_field(2, static_cast<std::uint64_t>(step));
}
std::string file_version_field(std::string_view version) {
  return bytes_field(3, version);
}
std::string summary_field(std::string_view summary) {
  return bytes_field(5, summary);
}
std::string session_log_field(std::string_view session) {
  return bytes_field(7, session);
}

}  // namespace

std::uint32_t masked_crc32c(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return std::rotr(static_cast<std::uint32_t>(crc.checksum()), 15) + 0xA282EAD8U;
}

std::string tfrecord(std::string_view payload) {
  const std::string length = raw(static_cast<std::uint64_t>(payload.size()));
  return length + raw(masked_crc32c(length)) + std::string(payload) + raw(masked_crc32c(payload));
}

std::string file_version_event(double wall_time) {
  return wall_time_field(wall_time) + file_version_field("brain.Event:2");
}

std::string session_start_event(double wall_time, std::int64_t step) {
  return wall_time_field(wall_time) + step_field(step) + session_log_field(number_field(1, kSessionStart));
}

std::string scalar_event(double wall_time, std::int64_t step, const std::string& tag, float value) {
  const std::string tagged = bytes_field(1, tag) + float_field(2, value);  // Summary.Value: tag, simple_value
  return wall_time_field(wall_time) + step_field(step) + summary_field(bytes_field(1, tagged));
}

}  // namespace ddprun
