// Reads random bytes as train.csv, next to a small valid test.csv.
#include "tests/fuzz/file_of_bytes.hpp"
#include "trainer/tables/csv_file.hpp"

using namespace ddprun;
using namespace ddprun::trainer;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::accepted_or_refused([&] {
    TrainConfig config;
    config.data.type = DataConfig::Type::kCsv;
    config.data.dir = fuzz::folder().path();
    config.data.target = "y";
    fuzz::folder().write("train.csv", fuzz::text_of(data, size));
    fuzz::folder().write("test.csv", "a,b,y\n1,2,0\n");
    (void)read_csv(config);
  });
}
