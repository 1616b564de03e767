#include "trainer/tokens/container.hpp"

#include <array>
#include <cstddef>

namespace ddprun::trainer {
namespace {

using namespace std::string_view_literals;

unsigned byte_at(std::string_view bytes, std::size_t place) {
  return static_cast<unsigned char>(bytes[place]);
}

// Checks a gzip header (RFC 1952): magic, method, flags, time, extra flags, operating system.
bool is_gzip(std::string_view bytes) {
  constexpr std::size_t kHeader = 10;
  if (bytes.size() < kHeader || byte_at(bytes, 3) > 0x1f) return false;
  const unsigned extra = byte_at(bytes, 8), system = byte_at(bytes, 9);
  return (extra == 0 || extra == 2 || extra == 4) && (system <= 13 || system == 255);
}

bool is_bzip2(std::string_view bytes) {
  return bytes.size() >= 10 && bytes[3] >= '1' && bytes[3] <= '9' && bytes.substr(4, 6) == "1AY&SY"sv;
}

// Pickle protocols 4 and 5 start with a frame. The frame's length is stored in 8 bytes, and the upper bytes are 0 in a file of
// normal size.
bool is_pickle(std::string_view bytes) {
  return bytes.size() >= 11 && bytes.substr(8, 3) == "\0\0\0"sv;
}

bool is_tar(std::string_view bytes) {
  return bytes.size() >= 512 && bytes.substr(257, 5) == "ustar"sv;
}

// A safetensors file starts with 8 bytes for the length of its header. The header is a JSON object.
bool is_safetensors(std::string_view bytes) {
  if (bytes.size() < 10 || (bytes.substr(8, 2) != "{\""sv && bytes.substr(8, 2) != "{}"sv)) return false;
  return bytes.substr(4, 4) == "\0\0\0\0"sv;
}

struct Container {
  std::string_view magic;  // the first bytes of the file
  std::string_view name;
  // checks more fields than the magic number; null if the magic number is sufficient
  bool (*more_fields)(std::string_view bytes) = nullptr;
};

constexpr std::array kContainers{
    Container{"\x93NUMPY"sv, "a NumPy array (.npy)"},
    Container{"PK\3\4"sv, "a zip archive (.zip, .npz, .pt)"},
    Container{"PK\5\6"sv, "a zip archive (.zip, .npz, .pt)"},  // an archive without files
    Container{"PAR1"sv, "a Parquet file"},
    Container{"ARROW1\0\0"sv, "an Arrow file"},
    Container{"\x28\xb5\x2f\xfd"sv, "a zstd file"},
    Container{"\x04\x22\x4d\x18"sv, "an lz4 file"},
    Container{"\xfd"
              "7zXZ\0"sv,
              "an xz file"},
    Container{"7z\xbc\xaf\x27\x1c"sv, "a 7z archive"},
    Container{"\x89HDF\r\n\x1a\n"sv, "an HDF5 file"},
    Container{"SQLite format 3\0"sv, "an SQLite database"},
    Container{"MMIDIDX\0"sv, "a Megatron index"},
    Container{"GGUF"sv, "a GGUF file"},
    Container{"Obj\1avro"sv, "an Avro file"},
    Container{"%PDF-1."sv, "a PDF file"},
    // A file of torch.save() before PyTorch 1.6: pickle protocol 2, then PyTorch's magic number as a 10-byte integer.
    Container{"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv, "a PyTorch file (.pt)"},
    Container{"\x80\x04\x95"sv, "a pickle of Python", is_pickle},
    Container{"\x80\x05\x95"sv, "a pickle of Python", is_pickle},
    Container{"\x1f\x8b\x08"sv, "a gzip file", is_gzip},
    Container{"BZh"sv, "a bzip2 file", is_bzip2},
    Container{""sv, "a tar archive", is_tar},
    Container{""sv, "a safetensors file", is_safetensors},
};

}  // namespace

std::string_view container_of(std::string_view bytes) {
  for (const Container& container : kContainers) {
    if (bytes.starts_with(container.magic) && (container.more_fields == nullptr || container.more_fields(bytes))) {
      return container.name;
    }
  }
  return "";
}

}  // namespace ddprun::trainer
