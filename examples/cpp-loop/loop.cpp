// A training loop of your own with parts of ddptrain: any number of workers fit a curve. If a worker is killed, no step is
// lost. After a SIGTERM the job saves and ends, and the next invocation resumes from its checkpoint.
//
//   ddprun --nproc-per-node 2 --max-restarts 3 build/myloop STEPS
//   torchrun --nproc-per-node 2 --no-python build/myloop STEPS
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <ddprun/loop.hpp>

#include <cstdio>
#include <string>

int main(int argc, char** argv) try {
  const std::int64_t steps = argc > 1 ? std::stoll(argv[1]) : 1000;
  constexpr std::int64_t kSamples = 4096, kBatch = 64, kSeed = 7;
  ddprun::Job job("myloop 1.0");  // first, so that it handles signals before other threads exist

  torch::manual_seed(kSeed);
  torch::nn::Sequential net(torch::nn::Linear(1, 64), torch::nn::Tanh(), torch::nn::Linear(64, 1));
  net->to(job.device());
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-3));
  const torch::Tensor x = torch::linspace(-3, 3, kSamples, job.device()).unsqueeze(1);
  const torch::Tensor y = torch::sin(2 * x);

  ddprun::State state(net.ptr(), optimizer);
  ddprun::Checkpointing checkpoints("checkpoints", {.every_steps = 100});
  ddprun::DistributedSampler sampler(kSamples, kBatch, kSeed);

  // After the loss of a worker, this function is called again with the next group.
  return job.run(state, checkpoints, [&](ddprun::Group& group) {
    ddprun::DataParallel parallel(state, group);
    while (group.next_step(steps)) {
      group.seed_step(kSeed);  // for dropout and other random numbers
      const ddprun::DistributedShare share = sampler.share(state.step(), group.rank(), group.world());
      const torch::Tensor samples = torch::tensor(share.samples, job.device());
      parallel.zero_grad();
      const torch::Tensor loss = parallel.backward(
          [&] {
            const torch::Tensor found = net->forward(x.index_select(0, samples));
            return (found - y.index_select(0, samples)).square().mean();
          },
          share.weight);
      state.update();
      group.figure("loss", loss.item<double>());
    }
  });
} catch (const std::exception& error) {
  std::fprintf(stderr, "myloop: %s\n", error.what());
  return 2;
}
