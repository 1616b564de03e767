// Encodes TensorBoard's event files. A file has Event messages in protobuf's encoding, each in a TFRecord. Only scalars are
// supported. The field numbers are from tensorboard/compat/proto/{event,summary}.proto. protozero, a header-only library,
// encodes the messages. We do not use libprotobuf, because it would conflict with the version of libprotobuf that
// libtorch_cpu.so exports. The code is pure (no I/O, no clock). EventFile writes the bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ddprun {

// Returns the CRC-32C (Castagnoli), masked as in TFRecord: rotated right by 15 bits, plus a constant.
std::uint32_t masked_crc32c(std::string_view bytes);

// Returns a TFRecord: the length of the payload (8 bytes), the masked CRC of the length (4 bytes), the payload, and its masked
// CRC (4 bytes). All numbers are little endian.
std::string tfrecord(std::string_view payload);

// These functions return Event messages. `wall_time` is in seconds since 1970.
std::string file_version_event(double wall_time);  // the first event of each file, with the version "brain.Event:2"
std::string session_start_event(double wall_time,
                                std::int64_t step);  // TensorBoard drops the data of older files from this step on
std::string scalar_event(double wall_time, std::int64_t step, const std::string& tag, float value);

}  // namespace ddprun
