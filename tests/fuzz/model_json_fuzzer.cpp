// Reads random bytes as the model.json of an exported model.
#include "tests/fuzz/file_of_bytes.hpp"
#include "trainer/exported/model_folder.hpp"

using namespace ddprun;
using namespace ddprun::trainer;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::accepted_or_refused([&] {
    fuzz::folder().write("model.json", fuzz::text_of(data, size));
    (void)read_batch_of(fuzz::folder().path());
    fuzz::folder().write("train.graph", "ddprun graph 1\n%0 = batch x\nreturn %0\n");
    fuzz::folder().write("eval.graph", "ddprun graph 1\n%0 = batch x\nreturn %0\n");
    (void)read_model_folder(fuzz::folder().path());
  });
}
