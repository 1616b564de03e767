// ddptrain: one training worker. ddprun, torchrun, srun, mpirun or a shell starts it; see docs/ for its command line, and
// trainer/life/worker.hpp for what it does.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/life/export_weights.hpp"
#include "trainer/life/version.hpp"
#include "trainer/life/worker.hpp"
#include "trainer/surroundings/options.hpp"
#include "trainer/surroundings/signals.hpp"

int main(int argc, char** argv) {
  using namespace ddprun;
  try {
    const trainer::Options options = trainer::parse_options(std::vector<std::string>(argv + 1, argv + argc));
    switch (options.action) {
      case trainer::Options::Action::kSayVersion:
        std::puts(("ddptrain " + trainer::version_with_torch()).c_str());
        return 0;
      case trainer::Options::Action::kSayHelp:
        std::fputs(options.help.c_str(), stdout);
        return 0;
      case trainer::Options::Action::kExportWeights:
        std::puts(trainer::export_weights(options.export_from, options.export_to).c_str());
        return 0;
      case trainer::Options::Action::kTrain:
        break;
    }
    // Everything is closed and flushed by now; the static destructors of LibTorch would only cost time.
    trainer::leave_now(trainer::run_worker(options));
  } catch (const Error& error) {
    std::fprintf(stderr, "ddptrain: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddptrain: %s\n", error.what());
    return 1;
  }
}
