// Implementation of container.hpp.
#include "trainer/tokens/container.hpp"

#include <array>
#include <cstddef>

namespace ddprun::trainer {
namespace {

using namespace std::string_view_literals;

struct Magic {
  std::string_view bytes;
  std::string_view name;
};

constexpr std::array kMagics{
    Magic{"\x93NUMPY"sv, "a NumPy array (.npy)"},
    Magic{"PK\3\4"sv, "a zip archive (.zip, .npz, .pt)"},
    Magic{"PK\5\6"sv, "a zip archive (.zip, .npz, .pt)"},
    Magic{"PAR1"sv, "a Parquet file"},
    Magic{"ARROW1\0\0"sv, "an Arrow file"},
    Magic{"\x28\xb5\x2f\xfd"sv, "a zstd file"},
    Magic{"\x04\x22\x4d\x18"sv, "an lz4 file"},
    Magic{"\xfd"
          "7zXZ\0"sv,
          "an xz file"},
    Magic{"7z\xbc\xaf\x27\x1c"sv, "a 7z archive"},
    Magic{"\x89HDF\r\n\x1a\n"sv, "an HDF5 file"},
    Magic{"SQLite format 3\0"sv, "an SQLite database"},
    Magic{"MMIDIDX\0"sv, "a Megatron index"},
    Magic{"GGUF"sv, "a GGUF file"},
    Magic{"Obj\1avro"sv, "an Avro file"},
    Magic{"%PDF-1."sv, "a PDF file"},
    // torch.save() before PyTorch 1.6: protocol 2, a long integer of 10 bytes, PyTorch's magic number.
    Magic{"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv, "a PyTorch file (.pt)"},
};

unsigned byte_at(std::string_view bytes, std::size_t place) {
  return static_cast<unsigned char>(bytes[place]);
}

// RFC 1952: magic, method, flags, time, extra flags, system.
bool is_gzip(std::string_view bytes) {
  constexpr std::size_t kHeader = 10;
  if (bytes.size() < kHeader || !bytes.starts_with("\x1f\x8b\x08"sv) || byte_at(bytes, 3) > 0x1f) return false;
  const unsigned extra = byte_at(bytes, 8), system = byte_at(bytes, 9);
  return (extra == 0 || extra == 2 || extra == 4) && (system <= 13 || system == 255);
}

bool is_bzip2(std::string_view bytes) {
  return bytes.size() >= 10 && bytes.starts_with("BZh"sv) && bytes[3] >= '1' && bytes[3] <= '9' &&
         bytes.substr(4, 6) == "1AY&SY"sv;
}

// Protocols 4 and 5 begin with a frame, whose length has 8 bytes of which the upper ones are 0.
bool is_pickle(std::string_view bytes) {
  return bytes.size() >= 11 && byte_at(bytes, 0) == 0x80 && (bytes[1] == 4 || bytes[1] == 5) && byte_at(bytes, 2) == 0x95 &&
         bytes.substr(8, 3) == "\0\0\0"sv;
}

bool is_tar(std::string_view bytes) {
  return bytes.size() >= 512 && bytes.substr(257, 5) == "ustar"sv;
}

// The length of a header, which begins with a brace.
bool is_safetensors(std::string_view bytes) {
  if (bytes.size() < 10 || (bytes.substr(8, 2) != "{\""sv && bytes.substr(8, 2) != "{}"sv)) return false;
  return bytes.substr(4, 4) == "\0\0\0\0"sv;
}

}  // namespace

std::string_view container_of(std::string_view bytes) {
  for (const Magic& magic : kMagics) {
    if (bytes.starts_with(magic.bytes)) return magic.name;
  }
  if (is_gzip(bytes)) return "a gzip file";
  if (is_bzip2(bytes)) return "a bzip2 file";
  if (is_pickle(bytes)) return "a pickle of Python";
  if (is_tar(bytes)) return "a tar archive";
  if (is_safetensors(bytes)) return "a safetensors file";
  return "";
}

}  // namespace ddprun::trainer
