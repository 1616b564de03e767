// The bytes of TensorBoard's event files: Event messages in protobuf's encoding, each framed as a TFRecord. Pure; EventFile
// writes them. Field numbers are those of tensorboard/compat/proto/{event,summary}.proto, limited to scalars. They are encoded
// by protozero, which is header-only: libprotobuf would conflict with the other version of itself that libtorch_cpu.so exports.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddprun {

// CRC-32C (Castagnoli), masked as in TFRecord: rotated right by 15 bits plus a constant.
std::uint32_t masked_crc32c(std::string_view bytes);

// length (8 bytes), its masked CRC (4), the payload, the payload's masked CRC (4); little endian.
std::string tfrecord(std::string_view payload);

// Event messages. `wall_time` is in seconds since 1970.
std::string file_version_event(double wall_time);  // the first of each file: "brain.Event:2"
std::string session_start_event(double wall_time,
                                std::int64_t step);  // readers drop their data of this step and later ones
std::string scalar_event(double wall_time, std::int64_t step, const std::string& tag, float value);

}  // namespace ddprun
