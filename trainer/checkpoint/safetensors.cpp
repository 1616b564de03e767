#include "trainer/checkpoint/safetensors.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "common/base/error.hpp"
#include "common/bounded/json_limits.hpp"
#include "common/bounded/short_quote.hpp"
#include "common/system/descriptor.hpp"
#include "common/system/resource_errors.hpp"
#include "trainer/checkpoint/dtypes.hpp"

namespace ddprun::trainer {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little-endian, and the bytes of a tensor are written without conversion");

constexpr std::int64_t kLengthBytes = 8;
constexpr std::size_t kMaxHeaderBytes = 100'000'000;  // the safetensors package has the same limit
constexpr const char* kMetadata = "__metadata__";
// These limits bound the size of the header, because a parsed header takes many times its size in memory.
constexpr std::size_t kMaxDimensions = 64;  // PyTorch's operators have the same limit
constexpr std::size_t kMaxKeys = 1 << 20;   // maximum number of tensors or of entries in the metadata

const Dtype& dtype_of(const NamedTensor& named) {
  const Dtype* const dtype = find_dtype(named.tensor.scalar_type());
  if (dtype != nullptr && !dtype->safetensors.empty()) return *dtype;
  throw InternalError("tensor '" + named.name + "' has element type " + c10::toString(named.tensor.scalar_type()) +
                      ", which ddptrain does not write to safetensors files");
}

std::int64_t bytes_of(const Dtype& dtype) {
  return static_cast<std::int64_t>(c10::elementSize(dtype.type));
}

std::string all_dtypes() {
  std::string names;
  for (const Dtype& dtype : kDtypes) {
    if (!dtype.safetensors.empty()) names.append(names.empty() ? "" : " ").append(dtype.safetensors);
  }
  return names;
}

// Returns the product of non-negative numbers; nullopt if it overflows. A factor of 0 does not hide an overflow of the other
// factors, because a tensor's strides are products of the other factors.
std::optional<std::int64_t> product(const std::vector<std::int64_t>& factors, std::int64_t first) {
  std::int64_t result = first;
  bool zero = false;
  for (const std::int64_t factor : factors) {
    zero = zero || factor == 0;
    if (__builtin_mul_overflow(result, std::max<std::int64_t>(factor, 1), &result)) return std::nullopt;
  }
  return zero ? 0 : result;
}

// The header's entry for one tensor, already checked.
struct Entry {
  std::string name;
  const Dtype* dtype = nullptr;  // null if the dtype is not supported
  std::string problem{};         // why the dtype is unsupported
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Reads from an open file, or from the bytes of a mapped file. A read returns exactly the requested bytes, or throws.
class InputFile {
 public:
  InputFile(const std::filesystem::path& file, Checksum* checksum)
      : file_(file),
        checksum_(checksum),
        opened_(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {  // O_NONBLOCK: open() of a FIFO must not block
    if (opened_.get() < 0) fail_with(errno, "cannot be opened: ");
    struct stat status {};
    if (::fstat(opened_.get(), &status) != 0 || !S_ISREG(status.st_mode)) fail("is not a regular file");
    size_ = status.st_size;
  }
  // `size` is the length of the file, of which `mapped` may be only the start.
  InputFile(const std::filesystem::path& file, std::string_view mapped, std::int64_t size)
      : file_(file), checksum_(nullptr), mapped_(mapped), size_(size) {}

  std::int64_t size() const { return size_; }

  void read(void* to, std::int64_t bytes) {
    char* next = static_cast<char*>(to);
    if (opened_.get() < 0) {
      if (std::cmp_less(mapped_.size(), bytes)) fail("is shorter than its header states");
      std::memcpy(next, mapped_.data(), static_cast<std::size_t>(bytes));
      mapped_.remove_prefix(static_cast<std::size_t>(bytes));
      return;
    }
    while (bytes > 0) {
      // If a checksum is computed, the file is read in pieces of 1 MiB. So each piece is still in the processor's cache when
      // its checksum is computed.
      const std::int64_t piece = checksum_ != nullptr ? std::min<std::int64_t>(bytes, 1 << 20) : bytes;
      const ssize_t got = ::read(opened_.get(), next, static_cast<std::size_t>(piece));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_with(errno, "cannot be read: ");
      if (got == 0) fail("became shorter while it was read");
      if (checksum_ != nullptr) checksum_->add({next, static_cast<std::size_t>(got)});
      next += got;
      bytes -= got;
    }
  }

  [[noreturn]] void fail(const std::string& problem) const { throw UsageError(text_of(problem)); }

 private:
  std::string text_of(const std::string& problem) const { return "safetensors file " + file_.string() + ": " + problem; }
  [[noreturn]] void fail_with(int error, const std::string& what) const {
    throw_if_resources_exhausted(error, text_of(what + std::strerror(error)));
    fail(what + std::strerror(error));
  }

  std::filesystem::path file_;
  Checksum* checksum_;         // null if no checksum is computed
  Descriptor opened_;          // not open if the file is mapped
  std::string_view mapped_{};  // bytes of the mapped file that were not read yet
  std::int64_t size_ = 0;
};

// Refuses a header with two tensors of the same name, which would be ambiguous. A valid header has at most three levels:
// object, tensor, array.
nlohmann::json parse_header(const std::string& text, const InputFile& file) {
  constexpr JsonLimits kLimits{.depth = 4,
                               .values = kMaxHeaderBytes,
                               .keys = kMaxKeys,
                               .elements = kMaxDimensions,
                               .unique_keys = true,
                               .entries = "tensors or metadata entries"};
  try {
    return parse_json_within(text, kLimits);
  } catch (const UsageError& problem) {
    file.fail(std::string("its header ") + problem.what());
  }
}

std::string text_of_json(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::int64_t non_negative(const nlohmann::json& value, const std::string& what, const InputFile& file) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
    file.fail(what + " has " + short_quote(text_of_json(value)) + " where a non-negative integer is expected");
  }
  return value.get<std::int64_t>();
}

Entry parse_entry(const std::string& name, const nlohmann::json& value, std::int64_t data_bytes, const InputFile& file) {
  const std::string what = "tensor '" + short_quote(name) + "'";
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets")) {
    file.fail(what + " must have exactly the keys dtype, shape and data_offsets");
  }
  Entry entry;
  entry.name = name;
  const nlohmann::json& dtype = value["dtype"];
  if (dtype.is_string()) entry.dtype = find_dtype(&Dtype::safetensors, dtype.get_ref<const std::string&>());
  if (entry.dtype == nullptr) {
    entry.problem = what + " has dtype " + short_quote(text_of_json(dtype)) + "; expected one of " + all_dtypes();
    if (!dtype.is_string()) file.fail(entry.problem);
  }
  if (!value["shape"].is_array()) file.fail(what + " has a shape that is not an array");
  for (const nlohmann::json& extent : value["shape"]) entry.shape.push_back(non_negative(extent, what + ": shape", file));

  const nlohmann::json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) file.fail(what + " has data_offsets that are not two numbers");
  entry.begin = non_negative(offsets[0], what + ": data_offsets", file);
  entry.end = non_negative(offsets[1], what + ": data_offsets", file);
  if (entry.begin > entry.end || entry.end > data_bytes) {
    file.fail(what + " has data_offsets " + short_quote(text_of_json(offsets)) + "; expected increasing offsets into the " +
              std::to_string(data_bytes) + " bytes of data (is the file truncated?)");
  }
  if (entry.dtype == nullptr) return entry;
  const std::optional<std::int64_t> bytes = product(entry.shape, bytes_of(*entry.dtype));
  if (!bytes || *bytes != entry.end - entry.begin) {
    file.fail(what + " has shape " + short_quote(text_of_json(value["shape"])) + " and dtype " +
              std::string(entry.dtype->safetensors) + ", which do not match its " + std::to_string(entry.end - entry.begin) +
              " bytes of data");
  }
  return entry;
}

// The tensors must cover the data exactly and in order. A gap could hide arbitrary bytes, and an overlap would give two tensors
// the same bytes.
void check_coverage(std::vector<Entry>& entries, std::int64_t data_bytes, const InputFile& file) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name); });
  std::int64_t covered = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != covered) {
      file.fail("tensor '" + short_quote(entry.name) + "' starts at byte " + std::to_string(entry.begin) +
                " of the data; expected byte " + std::to_string(covered) + ": " +
                (entry.begin < covered ? "tensors overlap" : "there is a gap before this tensor"));
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    file.fail("the tensors cover " + std::to_string(covered) + " bytes, but the file has " + std::to_string(data_bytes) +
              " bytes of data");
  }
}

at::Tensor read_tensor(const Entry& entry, InputFile& file) {
  at::Tensor tensor = at::empty(entry.shape, at::TensorOptions().dtype(entry.dtype->type));
  const std::int64_t bytes = entry.end - entry.begin;
  if (bytes == 0) return tensor;
  file.read(tensor.data_ptr(), bytes);
  if (entry.dtype->type == at::kBool) {
    const auto* values = static_cast<const unsigned char*>(tensor.data_ptr());
    if (std::any_of(values, values + bytes, [](unsigned char value) { return value > 1; })) {
      file.fail("tensor '" + short_quote(entry.name) + "' has dtype BOOL, but contains bytes other than 0 and 1");
    }
  }
  return tensor;
}

// A checked header. It contains the position of each tensor.
struct ReadHeader {
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
  std::int64_t data_begin = 0;  // offset in the file, in bytes
};

bool is_possible(std::uint64_t header_bytes, std::int64_t file_bytes) {
  return header_bytes <= kMaxHeaderBytes && static_cast<std::int64_t>(header_bytes) <= file_bytes - kLengthBytes;
}

ReadHeader read_header(InputFile& file) {
  if (file.size() < kLengthBytes) file.fail("has " + std::to_string(file.size()) + " bytes, too few for a header");
  std::uint64_t header_bytes = 0;
  file.read(&header_bytes, kLengthBytes);
  if (!is_possible(header_bytes, file.size())) {
    file.fail("states a header of " + std::to_string(header_bytes) + " bytes, but the file has " + std::to_string(file.size()) +
              " bytes, and a header may have at most " + std::to_string(kMaxHeaderBytes) + " (is it a safetensors file?)");
  }
  std::string text(header_bytes, '\0');
  file.read(text.data(), static_cast<std::int64_t>(header_bytes));
  if (text.empty() || text.front() != '{') file.fail("its header does not start with '{' (is it a safetensors file?)");
  const nlohmann::json header = parse_header(text, file);

  ReadHeader read;
  read.data_begin = kLengthBytes + static_cast<std::int64_t>(header_bytes);
  const std::int64_t data_bytes = file.size() - read.data_begin;
  for (const auto& [name, value] : header.items()) {
    if (name != kMetadata) {
      read.entries.push_back(parse_entry(name, value, data_bytes, file));
      continue;
    }
    if (!value.is_object()) file.fail("its __metadata__ is not an object of strings");
    for (const auto& [key, text_value] : value.items()) {
      if (!text_value.is_string()) file.fail("its __metadata__ is not an object of strings");
      read.metadata[key] = text_value.get<std::string>();
    }
  }
  check_coverage(read.entries, data_bytes, file);
  return read;
}

// Reads the file from its first byte to its last. Bytes that do not belong to a tensor in the header are a gap, which is an
// error.
SafetensorsContent read_all(const std::filesystem::path& path, Checksum* checksum) {
  InputFile file(path, checksum);
  ReadHeader header = read_header(file);
  SafetensorsContent content{.tensors = {}, .metadata = std::move(header.metadata)};
  content.tensors.reserve(header.entries.size());
  for (const Entry& entry : header.entries) {
    if (entry.dtype == nullptr) file.fail(entry.problem);
  }
  for (const Entry& entry : header.entries) content.tensors.push_back({entry.name, read_tensor(entry, file)});
  return content;
}

std::vector<StoredTensor> listed_in(InputFile& file) {
  const ReadHeader header = read_header(file);
  std::vector<StoredTensor> listed;
  for (const Entry& entry : header.entries) {
    listed.push_back({.name = entry.name,
                      .type = entry.dtype != nullptr ? entry.dtype->type : at::ScalarType::Undefined,
                      .sizes = entry.shape,
                      .begin = header.data_begin + entry.begin,
                      .bytes = entry.end - entry.begin,
                      .problem = entry.problem});
  }
  return listed;
}

}  // namespace

SafetensorsPlan plan_safetensors(const std::vector<NamedTensor>& tensors, const std::map<std::string, std::string>& metadata) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return bytes_of(dtype_of(tensors[a])) > bytes_of(dtype_of(tensors[b]));
  });

  SafetensorsPlan plan;
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::set<std::string> names{kMetadata};
  for (const std::size_t source : order) {
    const NamedTensor& named = tensors[source];
    if (!names.insert(named.name).second) {
      throw InternalError("two tensors of a safetensors file are named '" + named.name + "'");
    }
    const Dtype& dtype = dtype_of(named);
    const TensorLayout layout{.source = source, .begin = plan.data_bytes, .bytes = named.tensor.numel() * bytes_of(dtype)};
    plan.data_bytes += layout.bytes;
    // This calls push_back() and not operator[], which would search an ordered_json linearly for an equal key.
    header.get_ref<nlohmann::ordered_json::object_t&>().push_back({named.name,
                                                                   {{"dtype", dtype.safetensors},
                                                                    {"shape", named.tensor.sizes().vec()},
                                                                    {"data_offsets", {layout.begin, plan.data_bytes}}}});
    plan.tensors.push_back(layout);
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes) {
    throw InternalError("a safetensors header of " + std::to_string(text.size()) + " bytes exceeds the limit of the format");
  }
  const auto length = static_cast<std::uint64_t>(text.size());
  plan.head.assign(reinterpret_cast<const char*>(&length), kLengthBytes);
  plan.head += text;
  return plan;
}

void stream_safetensors(const SafetensorsPlan& plan, const std::vector<NamedTensor>& tensors, const ByteSink& sink) {
  sink(plan.head);
  for (const TensorLayout& layout : plan.tensors) {
    if (layout.bytes == 0) continue;
    const at::Tensor data = tensors[layout.source].tensor.detach().cpu().contiguous();
    sink({static_cast<const char*>(data.const_data_ptr()), static_cast<std::size_t>(layout.bytes)});
  }
}

std::string encode_safetensors(const std::vector<NamedTensor>& tensors, const std::map<std::string, std::string>& metadata) {
  const SafetensorsPlan plan = plan_safetensors(tensors, metadata);
  std::string bytes;
  bytes.reserve(static_cast<std::size_t>(plan.file_bytes()));
  stream_safetensors(plan, tensors, [&](std::string_view part) { bytes += part; });
  return bytes;
}

SafetensorsContent read_safetensors(const std::filesystem::path& path) {
  return read_all(path, nullptr);
}

SafetensorsContent read_safetensors(const std::filesystem::path& path, Checksum& checksum) {
  return read_all(path, &checksum);
}

std::vector<StoredTensor> list_safetensors(const std::filesystem::path& path) {
  InputFile file(path, nullptr);
  return listed_in(file);
}

std::vector<StoredTensor> list_safetensors(std::string_view bytes, const std::filesystem::path& path) {
  return list_safetensors(bytes, static_cast<std::int64_t>(bytes.size()), path);
}

std::vector<StoredTensor> list_safetensors(std::string_view start, std::int64_t file_bytes, const std::filesystem::path& path) {
  InputFile file(path, start, file_bytes);
  return listed_in(file);
}

std::int64_t safetensors_head_bytes(std::string_view start, std::int64_t file_bytes) {
  if (std::cmp_less(start.size(), kLengthBytes)) return kLengthBytes;
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, start.data(), kLengthBytes);
  return is_possible(header_bytes, file_bytes) ? kLengthBytes + static_cast<std::int64_t>(header_bytes) : kLengthBytes;
}

}  // namespace ddprun::trainer
