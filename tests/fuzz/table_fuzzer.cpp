// Reads random bytes as a table with text, dates and missing values. The first byte selects the kind of the target.
#include "tests/fuzz/file_of_bytes.hpp"
#include "trainer/tables/table_file.hpp"

using namespace ddprun;
using namespace ddprun::trainer;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  return fuzz::accepted_or_refused([&] {
    TrainConfig config;
    config.data.type = DataConfig::Type::kTable;
    config.data.dir = fuzz::folder().path();
    config.data.target = "y";
    config.data.test_table = "";
    config.data.test_fraction = 0.5;
    config.data.predict = data[0] % 2 == 0 ? DataConfig::Predict::kNumber : DataConfig::Predict::kClass;
    fuzz::folder().write("train.csv", fuzz::text_of(data + 1, size - 1));
    (void)read_table(config);
  });
}
