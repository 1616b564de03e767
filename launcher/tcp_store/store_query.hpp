// Parses queries in TCPStore's wire protocol, as clients of PyTorch 2.4 to 2.15 send them. A query starts with one byte for its
// kind, and its fields follow. Numbers have the byte order of the machine. A key or value consists of its length (8 bytes) and
// its bytes. A list consists of a count (8 bytes) and its elements. ScriptStore (script_store.hpp) processes the queries. The
// parser has no state.
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
  std::size_t keys = 1 << 20;             // maximum number of values and queue entries in the store
  std::size_t total_bytes = 512 << 20;    // maximum size of all keys, values and queue entries, in bytes
  std::size_t pending_bytes = 256 << 20;  // maximum size of the pending data of all clients, in bytes (script_store.hpp)
  std::size_t light_bytes = 64 << 10;     // larger replies are sent one at a time (script_store.hpp)
};

// TCPStore's protocol defines the numbers, so the order must not change.
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
  std::vector<std::string_view> keys{};    // views into the bytes that read_query() has received
  std::vector<std::string_view> values{};  // kCompareSet: the expected value and the new value
  // kValidate: the magic number; kPing: the nonce; kAdd: the amount; kBarrier: the number of participants
  std::int64_t number = 0;
};

inline constexpr std::uint32_t kMagic = 0x3C85F7CE;  // the number in kValidate, which every client sends first

struct ReadQuery {
  std::optional<Query> query;
  std::size_t bytes = 0;  // size of the query, or its minimum size if it is incomplete
  // The reason to refuse the query: it exceeds a limit, or PyTorch's clients never send it. The text is empty if the query is
  // not refused.
  std::string refusal{};
};

// Reads the query at the start of `bytes`. If the query is incomplete or refused, the result contains no query.
ReadQuery read_query(std::string_view bytes, const Limits& limits);

}  // namespace ddprun::script_store
