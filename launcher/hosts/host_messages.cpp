#include "launcher/hosts/host_messages.hpp"

#include <string.h>

#include <cstdint>
#include <utility>

#include "common/base/numbers.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kMaxNoise = 64 << 10;  // maximum number of bytes before the greeting
constexpr std::size_t kMaxHeader = 12;       // a letter, the digits of kMaxMessageBytes and the line end
constexpr std::size_t kOpenFields = 7;
constexpr std::size_t kMaxId = 64;
constexpr std::string_view kKinds = "irspqhaufoex";

bool is_id(std::string_view text) {
  return !text.empty() && text.size() <= kMaxId && text.find_first_not_of("0123456789abcdef-") == std::string_view::npos;
}

}  // namespace

std::string encode(MessageKind kind, std::string_view content) {
  std::string message(1, static_cast<char>(kind));
  message.append(std::to_string(content.size())).append("\n").append(content);
  return message;
}

std::string join_fields(const std::vector<std::string>& fields) {
  std::string content;
  for (const std::string& field : fields) (content += field) += '\0';
  return content;
}

std::vector<std::string> split_fields(std::string_view content) {
  std::vector<std::string> fields;
  for (std::size_t end = 0; (end = content.find('\0')) != std::string_view::npos; content.remove_prefix(end + 1))
    fields.emplace_back(content.substr(0, end));
  return fields;
}

std::string to_content(const OpenRequest& request) {
  return join_fields({request.version, request.mode == OpenRequest::Mode::kAttach ? "attach" : "start", request.id,
                      request.folder, request.interface, std::to_string(request.lost_timeout_ms),
                      request.is_first ? "first" : "other"});
}

std::optional<OpenRequest> parse_open_request(std::string_view content) {
  std::vector<std::string> fields = split_fields(content);
  if (fields.size() < kOpenFields || !is_id(fields[2])) return std::nullopt;
  const auto timeout = exact_number<std::int64_t>(fields[5]);
  if (!timeout || *timeout < 0 || *timeout > INT32_MAX) return std::nullopt;
  return OpenRequest{.version = std::move(fields[0]),
                     .mode = fields[1] == "attach" ? OpenRequest::Mode::kAttach : OpenRequest::Mode::kStart,
                     .id = std::move(fields[2]),
                     .folder = std::move(fields[3]),
                     .interface = std::move(fields[4]),
                     .lost_timeout_ms = static_cast<int>(*timeout),
                     .is_first = fields[6] == "first"};
}

std::string to_content(const RunRequest& request) {
  std::vector<std::string> fields{request.token, std::to_string(request.variables.size())};
  fields.insert(fields.end(), request.variables.begin(), request.variables.end());
  fields.insert(fields.end(), request.words.begin(), request.words.end());
  std::string content = join_fields(fields);
  ::explicit_bzero(fields[0].data(), fields[0].size());
  return content;
}

std::optional<RunRequest> parse_run_request(std::string_view content) {
  std::vector<std::string> fields = split_fields(content);
  const auto count = fields.size() < 2 ? std::nullopt : exact_number<std::int64_t>(fields[1]);
  if (!count || *count < 0 || static_cast<std::size_t>(*count) + 2 > fields.size()) return std::nullopt;
  const auto words = fields.begin() + 2 + *count;
  return RunRequest{.token = std::move(fields[0]), .variables = {fields.begin() + 2, words}, .words = {words, fields.end()}};
}

void MessageReader::feed(std::string_view bytes) {
  if (broken_) return;
  buffer_.erase(0, std::exchange(start_, 0));
  buffer_ += bytes;
  if (greeted_) return;
  const std::size_t greeting = buffer_.find(kHostGreeting);
  if (greeting == std::string::npos) {
    broken_ = buffer_.size() > kMaxNoise;
    return;
  }
  greeted_ = true;
  drop(greeting + kHostGreeting.size());
}

std::optional<HostMessage> MessageReader::next() {
  const std::string_view rest = std::string_view(buffer_).substr(start_);
  if (!greeted_ || broken_ || rest.empty()) return std::nullopt;
  const std::size_t line = rest.find('\n');
  if (line == std::string_view::npos && rest.size() < kMaxHeader) return std::nullopt;
  const bool is_header = line != std::string_view::npos && line >= 2 && kKinds.find(rest[0]) != std::string_view::npos;
  const auto size = is_header ? exact_number<std::int64_t>(rest.substr(1, line - 1)) : std::nullopt;
  if (!size || *size < 0 || *size > static_cast<std::int64_t>(kMaxMessageBytes)) {
    broken_ = true;
    return std::nullopt;
  }
  const std::size_t whole = line + 1 + static_cast<std::size_t>(*size);
  if (rest.size() < whole) return std::nullopt;
  HostMessage message{static_cast<MessageKind>(rest[0]), std::string(rest.substr(line + 1, whole - line - 1))};
  drop(whole);
  return message;
}

void MessageReader::drop(std::size_t bytes) {
  ::explicit_bzero(buffer_.data() + start_, bytes);
  start_ += bytes;
}

}  // namespace ddprun
