// ddptrain: one training worker, started by ddprun, torchrun, srun, mpirun or a shell. Its implementation starts in
// trainer/life/worker.hpp. Its command line is documented in docs/.
#include "trainer/life/subject.hpp"
#include "trainer/life/worker.hpp"

int main(int argc, char** argv) {
  return ddprun::trainer::run_worker_main(argc, argv, ddprun::trainer::chosen_by_config());
}
