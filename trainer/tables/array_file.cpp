#include "trainer/tables/array_file.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/bounded/short_quote.hpp"
#include "trainer/checkpoint/dtypes.hpp"
#include "trainer/checkpoint/safetensors.hpp"
#include "trainer/data/samples.hpp"
#include "trainer/finite/not_finite.hpp"
#include "trainer/reading/mapped_file.hpp"
#include "trainer/tables/table.hpp"

namespace ddprun::trainer {
namespace {

// Returns the rest of a NumPy header after `key`. An example of a header is {'descr': '<f4', 'fortran_order': False, 'shape':
// (60, 4), }.
std::string_view value_after(std::string_view header, std::string_view key, const std::string& file) {
  const std::size_t found = header.find(key);
  if (found == std::string_view::npos) throw UsageError(file + ": its .npy header has no " + std::string(key));
  std::string_view rest = header.substr(found + key.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(": "), rest.size()));
  return rest;
}

at::ScalarType numpy_type(std::string_view text, const std::string& file) {
  const std::string_view name = text.size() > 2 ? text.substr(1, text.find_first_of("'\"", 1) - 1) : text;
  if (const Dtype* const found = find_dtype(&Dtype::numpy, name)) return found->type;
  throw UsageError(file + ": has elements of type '" + short_quote(name) +
                   "'; expected numbers in the byte order of this machine, such as '<f4'. Convert it with astype('float32')");
}

std::vector<std::int64_t> numpy_shape(std::string_view text, const std::string& file) {
  constexpr std::int64_t kMax = std::int64_t{1} << 40;
  constexpr std::size_t kMaxDimensions = 64;  // NumPy has the same limit
  std::vector<std::int64_t> sizes;
  std::int64_t elements = 1;
  if (!text.starts_with('(')) throw UsageError(file + ": has no shape in its header");
  text.remove_prefix(1);
  while (!text.empty() && text.front() != ')') {
    std::int64_t size = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || size < 0 || size > kMax || (size > 0 && elements > kMax / size) ||
        sizes.size() == kMaxDimensions) {
      throw UsageError(file + ": has an invalid shape in its header: " + printable(text.substr(0, 40)));
    }
    elements *= std::max<std::int64_t>(size, 1);
    sizes.push_back(size);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    text.remove_prefix(std::min(text.find_first_not_of(", "), text.size()));
  }
  return sizes;
}

ArrayHeader npy_header(std::string_view bytes, const std::string& file) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  constexpr std::size_t kVersionEnd = 8;
  if (!bytes.starts_with(kMagic) || bytes.size() < kVersionEnd + 4) throw UsageError(file + ": is not a .npy file");
  const int version = static_cast<unsigned char>(bytes[kMagic.size()]);
  if (const int minor = static_cast<unsigned char>(bytes[kMagic.size() + 1]); version < 1 || version > 3 || minor != 0) {
    throw UsageError(file + ": has version " + std::to_string(version) + "." + std::to_string(minor) +
                     " of the .npy format; expected 1.0, 2.0 or 3.0. Save the array again with numpy.save()");
  }
  const std::size_t width = version == 1 ? 2 : 4;  // size of the header's length field in bytes
  std::size_t length = 0;
  for (std::size_t i = 0; i < width; ++i) length |= std::size_t{static_cast<std::uint8_t>(bytes[kVersionEnd + i])} << (8 * i);
  const std::size_t begin = kVersionEnd + width;
  if (length > bytes.size() - begin) throw UsageError(file + ": is shorter than its header states");
  if (constexpr std::size_t kMaxHeader = std::size_t{1} << 16; length > kMaxHeader) {
    throw UsageError(file + ": has a header of " + std::to_string(length) + " bytes; the largest supported header has " +
                     std::to_string(kMaxHeader));
  }
  const std::string_view header = bytes.substr(begin, length);
  if (value_after(header, "'fortran_order'", file).starts_with("True")) {
    throw UsageError(file + ": is stored in Fortran order; expected C order. Save numpy.ascontiguousarray() of the array");
  }
  return {.type = numpy_type(value_after(header, "'descr'", file), file),
          .sizes = numpy_shape(value_after(header, "'shape'", file), file),
          .begin = static_cast<std::int64_t>(begin + length)};
}

std::size_t bytes_in_array(const ArrayHeader& header) {
  return static_cast<std::size_t>(c10::multiply_integers(header.sizes)) * c10::elementSize(header.type);
}

void require_samples(const ArrayHeader& header, const std::string& what) {
  if (!header.sizes.empty() && header.sizes[0] > 0 && bytes_in_array(header) > 0) return;
  throw UsageError(what + ": expected an array whose first dimension counts the samples, found a scalar or an empty array");
}

struct Place {
  std::filesystem::path file;
  std::string tensor;  // name of the tensor in a safetensors file; empty for a .npy file
};

Place place_in(const std::filesystem::path& folder, const std::string& what) {
  constexpr std::string_view kEnding = ".safetensors:";
  if (const std::size_t at = what.find(kEnding); at != std::string::npos) {
    return {.file = folder / what.substr(0, at + kEnding.size() - 1), .tensor = what.substr(at + kEnding.size())};
  }
  if (what.ends_with(".npy")) return {.file = folder / what, .tensor = {}};
  throw UsageError("'" + what + "' does not name an array; expected FILE.npy or FILE.safetensors:NAME");
}

ArrayHeader stored_header(const Place& place, std::string_view bytes) {
  constexpr std::size_t kShown = 20;
  std::string names;
  const std::vector<StoredTensor> all = list_safetensors(bytes, place.file);
  for (const StoredTensor& tensor : all) {
    if (tensor.name == place.tensor) {
      if (!tensor.problem.empty()) throw UsageError(place.file.string() + ": " + tensor.problem);
      return {.type = tensor.type, .sizes = tensor.sizes, .begin = tensor.begin};
    }
  }
  for (std::size_t i = 0; i < std::min(kShown, all.size()); ++i) names += (i == 0 ? "" : ", ") + short_quote(all[i].name);
  if (all.size() > kShown) names += " and " + std::to_string(all.size() - kShown) + " more";
  throw UsageError(place.file.string() + ": has no tensor '" + place.tensor + "'; it has " + (names.empty() ? "none" : names));
}

ArrayHeader header_at(const Place& place, const MappedFile& mapped) {
  const std::string file = place.file.string();
  const ArrayHeader header = place.tensor.empty() ? npy_header(mapped.bytes(), file) : stored_header(place, mapped.bytes());
  const auto begin = static_cast<std::size_t>(header.begin);
  if (begin > mapped.bytes().size()) throw UsageError(file + ": became shorter while it was read");
  const std::size_t expected = bytes_in_array(header), found = mapped.bytes().size() - begin;
  if (place.tensor.empty() ? expected != found : expected > found) {
    throw UsageError(file + ": its header states " + std::to_string(expected) + " bytes of numbers, but " +
                     std::to_string(found) + " follow");
  }
  require_samples(header, place.tensor.empty() ? file : file + ":" + place.tensor);
  return header;
}

void require_truth(std::span<const char> bytes, const std::string& what) {
  if (std::ranges::all_of(bytes, [](char byte) { return byte == 0 || byte == 1; })) return;
  throw UsageError("'" + what + "': its elements are of type bool, but some bytes are neither 0 nor 1");
}

at::Tensor checked_classes(const at::Tensor& targets, std::int64_t classes, const std::string& what) {
  if (targets.dim() != 1 || !at::isIntegralType(targets.scalar_type(), /*includeBool=*/true)) {
    throw UsageError("'" + what + "': expected one integer per sample, its class. To predict numbers, set data.predict to " +
                     "\"number\"");
  }
  at::Tensor labels = targets.to(at::kLong).contiguous();
  const std::span numbers(labels.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(labels.size(0)));
  const auto wrong = std::ranges::find_if(numbers, [classes](std::int64_t label) { return label < 0 || label >= classes; });
  if (wrong == numbers.end()) return labels;
  throw UsageError("'" + what + "': sample " + std::to_string(wrong - numbers.begin()) + " has class " +
                   std::to_string(*wrong) + "; expected 0.." + std::to_string(classes - 1) +
                   ". Check the file, or data.classes.");
}

// Converts the array to float32, the input type of models. Throws if a value is not finite. All values are checked when the
// file is read, because an error during training could come hours later.
at::Tensor finite_numbers(const at::Tensor& stored, const std::string& what) {
  at::Tensor numbers = stored.to(at::kFloat).contiguous();
  const std::optional<NotFinite> found = first_not_finite(numbers);
  if (!found) return numbers;
  at::Tensor rest_of = stored;
  for (const std::int64_t each : found->index) rest_of = rest_of.select(0, each);
  const auto value = rest_of.item<double>();
  const bool too_large = std::isfinite(value);
  throw UsageError("'" + what + "': sample " + std::to_string(found->index.at(0)) + " has " +
                   (too_large ? c10::str(value) : not_finite_text(value)) + place_text(std::span(found->index).subspan(1)) +
                   (too_large ? ", which does not fit into float32" : "") +
                   "; expected finite numbers. Replace such values, or remove these samples");
}

Table read_pair(const DataConfig& config, const std::string& inputs, const std::string& targets, std::int64_t limit,
                const char* limit_key) {
  const at::Tensor from = read_array(config.dir, inputs), to = read_array(config.dir, targets);
  if (from.size(0) != to.size(0)) {
    throw UsageError("'" + inputs + "' has " + std::to_string(from.size(0)) + " samples but '" + targets + "' has " +
                     std::to_string(to.size(0)) + "; expected the same number");
  }
  const std::int64_t rows = samples_to_use(limit, from.size(0), limit_key, inputs);
  const at::Tensor kept = to.narrow(0, 0, rows);
  return {.inputs = finite_numbers(from.narrow(0, 0, rows), inputs),
          .targets = config.predict == DataConfig::Predict::kClass ? checked_classes(kept, config.classes, targets)
                                                                   : finite_numbers(kept, targets).reshape({rows, -1})};
}

ArrayHeader header_of(const std::filesystem::path& folder, const std::string& what) {
  const Place place = place_in(folder, what);
  return header_at(place, MappedFile(place.file));
}

std::string sizes_text(std::span<const std::int64_t> sizes) {
  std::string text;
  for (const std::int64_t size : sizes) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return sizes.empty() ? "one number" : text;
}

void require_equal_rows(const DataConfig& config, const std::string& train, const std::string& test) {
  const ArrayHeader first = header_of(config.dir, train), second = header_of(config.dir, test);
  const std::span of_first = std::span(first.sizes).subspan(1), of_second = std::span(second.sizes).subspan(1);
  if (std::ranges::equal(of_first, of_second)) return;
  throw UsageError("a sample of '" + test + "' is " + sizes_text(of_second) + ", but one of '" + train + "' is " +
                   sizes_text(of_first) + "; expected the same");
}

}  // namespace

ArrayHeader read_array_header(const std::filesystem::path& folder, const std::string& what) {
  return header_of(folder, what);
}

at::Tensor read_array(const std::filesystem::path& folder, const std::string& what) {
  const Place place = place_in(folder, what);
  auto mapped = std::make_shared<const MappedFile>(place.file);
  const ArrayHeader header = header_at(place, *mapped);
  // from_blob() takes a pointer to writable memory, but no code writes to this tensor.
  auto* const first = const_cast<char*>(mapped->bytes().data() + header.begin);
  if (header.type == at::kBool) require_truth({first, bytes_in_array(header)}, what);
  if (header.begin % static_cast<std::int64_t>(c10::elementSize(header.type)) != 0) {  // copy unaligned data
    at::Tensor aligned = at::empty(header.sizes, at::TensorOptions().dtype(header.type));
    std::memcpy(aligned.mutable_data_ptr(), first, bytes_in_array(header));
    return aligned;
  }
  return at::from_blob(
      first, header.sizes, [mapped](void*) {}, at::TensorOptions().dtype(header.type));
}

Description describe_arrays(const DataConfig& config) {
  const ArrayHeader inputs = read_array_header(config.dir, config.train_inputs);
  const ArrayHeader targets = read_array_header(config.dir, config.train_targets);
  return describe_row({inputs.sizes.begin() + 1, inputs.sizes.end()}, config.predict,
                      c10::multiply_integers(targets.sizes.begin() + 1, targets.sizes.end()));
}

Sources read_arrays(const DataConfig& config) {
  Sources sources;
  sources.train =
      table_source(read_pair(config, config.train_inputs, config.train_targets, config.train_samples, "data.train_samples"));
  require_equal_rows(config, config.train_inputs, config.test_inputs);
  require_equal_rows(config, config.train_targets, config.test_targets);
  sources.test =
      table_source(read_pair(config, config.test_inputs, config.test_targets, config.test_samples, "data.test_samples"));
  return sources;
}

}  // namespace ddprun::trainer
