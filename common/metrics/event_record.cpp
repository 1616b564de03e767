#include "common/metrics/event_record.hpp"

#include <bit>
#include <boost/crc.hpp>
#include <protozero/pbf_builder.hpp>

namespace ddprun {
namespace {

static_assert(
    std::endian::native == std::endian::little,
    "expected a little-endian machine: numbers are copied from memory to TFRecords, and this format is little-endian");

enum class Event : protozero::pbf_tag_type { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum class Summary : protozero::pbf_tag_type { kValue = 1 };
enum class Value : protozero::pbf_tag_type { kTag = 1, kSimpleValue = 2 };
enum class SessionLog : protozero::pbf_tag_type { kStatus = 1 };
constexpr std::int32_t kSessionStart = 1;

template <typename T>
std::string raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
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
  std::string bytes;
  protozero::pbf_builder<Event> event(bytes);
  event.add_double(Event::kWallTime, wall_time);
  event.add_string(Event::kFileVersion, "brain.Event:2");
  return bytes;
}

std::string session_start_event(double wall_time, std::int64_t step) {
  std::string session;
  protozero::pbf_builder<SessionLog>(session).add_enum(SessionLog::kStatus, kSessionStart);
  std::string bytes;
  protozero::pbf_builder<Event> event(bytes);
  event.add_double(Event::kWallTime, wall_time);
  event.add_int64(Event::kStep, step);
  event.add_message(Event::kSessionLog, session);
  return bytes;
}

std::string scalar_event(double wall_time, std::int64_t step, const std::string& tag, float value) {
  std::string entry_bytes;
  protozero::pbf_builder<Value> entry(entry_bytes);
  entry.add_string(Value::kTag, tag);
  entry.add_float(Value::kSimpleValue, value);
  std::string summary;
  protozero::pbf_builder<Summary>(summary).add_message(Summary::kValue, entry_bytes);
  std::string bytes;
  protozero::pbf_builder<Event> event(bytes);
  event.add_double(Event::kWallTime, wall_time);
  event.add_int64(Event::kStep, step);
  event.add_message(Event::kSummary, summary);
  return bytes;
}

}  // namespace ddprun
