// The queries of TCPStore's wire protocol, as clients of PyTorch 2.4 to 2.15 send them: one byte of kind, then fields in the
// machine's own byte order. A key or a value is a length (8 bytes) and its bytes; a list is a count (8 bytes) and its parts.
// script_store.hpp answers them. Nothing here keeps state.
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
  std::size_t keys = 1 << 20;             // values and queued values
  std::size_t total_bytes = 512 << 20;    // of their keys and bytes
  std::size_t pending_bytes = 256 << 20;  // of all clients together, see script_store.hpp
  std::size_t light_bytes = 64 << 10;     // an answer up to this size needs no turn
};

// The numbers are the protocol's.
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
  std::vector<std::string_view> keys{};    // they point into the bytes that were read
  std::vector<std::string_view> values{};  // kCompareSet: expected, new
  std::int64_t number = 0;  // kValidate: the magic number; kPing: the nonce; kAdd: the amount; kBarrier: of how many
};

inline constexpr std::uint32_t kMagic = 0x3C85F7CE;  // of kValidate, which is a client's first query

struct ReadQuery {
  std::optional<Query> query;
  std::size_t bytes = 0;  // that the query has; without one: that it has at least
  std::string refusal{};  // not empty: no client of PyTorch's sends this, or it breaks a limit
};

// Reads the query with which `bytes` begin.
ReadQuery read_query(std::string_view bytes, const Limits& limits);

}  // namespace ddprun::script_store
