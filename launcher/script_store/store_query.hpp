// The queries of TCPStore's wire protocol, as sent by clients of PyTorch 2.4 to 2.15: one byte for the kind, then fields in the
// machine's own byte order. A key or value is a length (8 bytes) and its bytes; a list is a count (8 bytes) and its elements.
// script_store.hpp answers them. Stateless.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::script_store {

struct Limits {
  std::size_t key_bytes = 64 << 10;
  std::size_t value_bytes = 16 << 20;
  std::size_t keys_of_a_query = 128 << 10;
  std::size_t query_bytes = 64 << 20;
  std::size_t reply_bytes = 64 << 20;
  std::size_t keys = 1 << 20;             // number of values and queued values
  std::size_t total_bytes = 512 << 20;    // total size of keys and values in bytes
  std::size_t pending_bytes = 256 << 20;  // pending bytes of all clients together, see script_store.hpp
  std::size_t light_bytes = 64 << 10;     // an answer up to this size needs no turn
};

// The numbers are defined by the protocol.
enum class QueryKind : std::uint8_t {
  kValidate,
  kSet,
  kCompareSet,
  kGet,
  kAdd,
  kCheck,
  kWait,
  kCountKeys,
  kDelete,
  kAppend,
  kGetMany,
  kSetMany,
  kCancelWait,
  kPing,
  kPush,
  kPop,
  kQueueLength,
  kListKeys,
  kBarrier,  // since PyTorch 2.12
};

struct Query {
  QueryKind kind = QueryKind::kPing;
  std::vector<std::string_view> keys{};    // views into the bytes that were read
  std::vector<std::string_view> values{};  // kCompareSet: expected value, new value
  // kValidate: the magic number; kPing: the nonce; kAdd: the amount; kBarrier: the number of participants
  std::int64_t number = 0;
};

inline constexpr std::uint32_t kMagic = 0x3C85F7CE;  // number in kValidate, which is a client's first query

struct ReadQuery {
  std::optional<Query> query;
  std::size_t bytes = 0;  // size of the query; without a query: its minimum size
  std::string refusal{};  // not empty: PyTorch's clients never send this, or it exceeds a limit
};

// Reads the query at the beginning of `bytes`.
ReadQuery read_query(std::string_view bytes, const Limits& limits);

}  // namespace ddprun::script_store
