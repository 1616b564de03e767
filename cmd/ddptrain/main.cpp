// ddptrain: one training worker. ddprun, torchrun, srun, mpirun or a shell starts it; see docs/ for its command line, and
// trainer/life/worker.hpp for what it does.
#include "trainer/life/subject.hpp"
#include "trainer/life/worker.hpp"

int main(int argc, char** argv) {
  return ddprun::trainer::run_worker_main(argc, argv, ddprun::trainer::chosen_by_config());
}
