// Parses random bytes as the text of an exported graph, and searches LibTorch for the graph's operators. The graph is not
// run.
#include "tests/fuzz/file_of_bytes.hpp"
#include "trainer/exported/graph.hpp"

using namespace ddprun;
using namespace ddprun::trainer;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::accepted_or_refused([&] { (void)Graph(parse_graph(fuzz::text_of(data, size), "train.graph")).operators(); });
}
