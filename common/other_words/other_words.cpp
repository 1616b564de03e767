// Implementation of other_words.hpp.
#include "common/other_words/other_words.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace ddprun {
namespace {

struct OtherWord {
  std::string_view word;
  std::string_view here;
};

// `here` starts with a key of train.json. Words without such a key have a description of the alternative.
constexpr std::array kKeys{
    OtherWord{"learning_rate", "'optimizer.lr'"},
    OtherWord{"base_lr", "'optimizer.lr'"},
    OtherWord{"init_lr", "'optimizer.lr'"},
    OtherWord{"num_workers", "'data.loader_threads', threads of each worker"},
    OtherWord{"dataloader_num_workers", "'data.loader_threads', threads of each worker"},
    OtherWord{"workers",
              "'data.loader_threads', threads of each worker; ddprun's --nproc-per-node sets the number of processes"},
    OtherWord{"prefetch_factor", "'data.prefetch'"},
    OtherWord{"gpus", "an option of ddprun: --nproc-per-node"},
    OtherWord{"num_gpus", "an option of ddprun: --nproc-per-node"},
    OtherWord{"devices", "an option of ddprun: --nproc-per-node"},
    OtherWord{"num_processes", "an option of ddprun: --nproc-per-node"},
    OtherWord{"nproc_per_node", "an option of ddprun: --nproc-per-node"},
    OtherWord{"num_nodes", "an option of ddprun: --nnodes"},
    OtherWord{"nnodes", "an option of ddprun: --nnodes"},
    OtherWord{"bf16", "\"precision\": \"bf16\""},
    OtherWord{"bfloat16", "\"precision\": \"bf16\""},
    OtherWord{"fp16", "\"precision\": \"fp16\""},
    OtherWord{"float16", "\"precision\": \"fp16\""},
    OtherWord{"half", "\"precision\": \"fp16\""},
    OtherWord{"tf32", "\"precision\": \"tf32\""},
    OtherWord{"amp", "\"precision\": \"bf16\" or \"fp16\""},
    OtherWord{"mixed_precision", "'precision'"},
    OtherWord{"dtype", "'precision'"},
    OtherWord{"torch_dtype", "'precision'"},
    OtherWord{"num_epochs", "'epochs'"},
    OtherWord{"num_train_epochs", "'epochs'"},
    OtherWord{"max_epochs", "'epochs'"},
    OtherWord{"steps", "'max_steps'"},
    OtherWord{"num_steps", "'max_steps'"},
    OtherWord{"max_iters", "'max_steps'"},
    OtherWord{"bs", "'batch_size', of all workers together"},
    OtherWord{"train_batch_size", "'batch_size', of all workers together"},
    OtherWord{"global_batch_size", "'batch_size', of all workers together"},
    OtherWord{"per_device_train_batch_size", "'batch_size', of all workers together"},
    OtherWord{"per_device_eval_batch_size", "'eval_batch_size', of all workers together"},
    OtherWord{"gradient_accumulation_steps", "'micro_batch_size', the samples of one pass of a worker"},
    OtherWord{"accumulate_grad_batches", "'micro_batch_size', the samples of one pass of a worker"},
    OtherWord{"max_grad_norm", "'clip_grad_norm'"},
    OtherWord{"grad_clip", "'clip_grad_norm'"},
    OtherWord{"gradient_clip_val", "'clip_grad_norm'"},
    OtherWord{"wd", "'optimizer.weight_decay'"},
    OtherWord{"adam_epsilon", "'optimizer.eps'"},
    OtherWord{"adam_beta1", "'optimizer.betas', a list of two"},
    OtherWord{"adam_beta2", "'optimizer.betas', a list of two"},
    OtherWord{"lr_scheduler", "'schedule', with its own \"type\""},
    OtherWord{"lr_scheduler_type", "'schedule.type'"},
    OtherWord{"scheduler", "'schedule', with its own \"type\""},
    OtherWord{"warmup", "'schedule.warmup_steps'"},
    OtherWord{"num_warmup_steps", "'schedule.warmup_steps'"},
    OtherWord{"save_steps", "'checkpoint.every_steps'"},
    OtherWord{"save_every", "'checkpoint.every_steps'"},
    OtherWord{"save_total_limit", "'checkpoint.keep'"},
    OtherWord{"eval_steps", "'eval_every_steps'"},
    OtherWord{"val_check_interval", "'eval_every_steps'"},
    OtherWord{"logging_steps", "'log.every_steps'"},
    OtherWord{"log_every_n_steps", "'log.every_steps'"},
    OtherWord{"random_seed", "'seed'"},
    OtherWord{"seed_everything", "'seed'"},
    OtherWord{"data_dir", "'data.dir'"},
    OtherWord{"data_path", "'data.dir'"},
    OtherWord{"dataset", "'data', with its \"type\" and \"dir\""},
    OtherWord{"output_dir", "an option of ddprun: --run-dir"},
    OtherWord{"resume_from_checkpoint", "not needed: the same command resumes the run in its --run-dir"},
    OtherWord{"gradient_checkpointing", "'model.activation_checkpointing'"},
    OtherWord{"sync_batchnorm", "'model.sync_batch_norm'"},
    OtherWord{"label_smoothing_factor", "'label_smoothing'"},
    OtherWord{"find_unused_parameters", "'ddp.find_unused_parameters'"},
};

constexpr std::array kOptions{
    OtherWord{"gpus", "--nproc-per-node"},
    OtherWord{"gpus-per-node", "--nproc-per-node"},
    OtherWord{"num-gpus", "--nproc-per-node"},
    OtherWord{"devices", "--nproc-per-node"},
    OtherWord{"nprocs", "--nproc-per-node"},
    OtherWord{"nproc", "--nproc-per-node"},
    OtherWord{"nporc", "--nproc-per-node"},
    OtherWord{"np", "--nproc-per-node"},
    OtherWord{"n", "--nproc-per-node"},
    OtherWord{"num-procs", "--nproc-per-node"},
    OtherWord{"num-processes", "--nproc-per-node"},
    OtherWord{"num-proc", "--nproc-per-node"},
    OtherWord{"workers", "--nproc-per-node"},
    OtherWord{"num-workers", "--nproc-per-node; data.loader_threads=N behind a train.json sets the threads that load data"},
    OtherWord{"ntasks-per-node", "--nproc-per-node"},
    OtherWord{"num-nodes", "--nnodes"},
    OtherWord{"nodes", "--nnodes"},
    OtherWord{"num-machines", "--nnodes"},
    OtherWord{"machine-rank", "--node-rank"},
    OtherWord{"main-process-ip", "--master-addr"},
    OtherWord{"main-process-port", "--master-port"},
    OtherWord{"port", "--master-port"},
    OtherWord{"host", "--master-addr"},
    OtherWord{"retries", "--max-restarts"},
    OtherWord{"restarts", "--max-restarts"},
    OtherWord{"output-dir", "--run-dir"},
    OtherWord{"logs", "--log-dir"},
    OtherWord{"lr", "optimizer.lr=VALUE after a train.json; options of a script stand after the script"},
    OtherWord{"learning-rate", "optimizer.lr=VALUE after a train.json; options of a script stand after the script"},
    OtherWord{"epochs", "epochs=N after a train.json; options of a script stand after the script"},
    OtherWord{"batch-size", "batch_size=N after a train.json; options of a script stand after the script"},
    OtherWord{"seed", "seed=N after a train.json; options of a script stand after the script"},
    OtherWord{"use-env", "not needed: workers get LOCAL_RANK in their environment"},
};

std::string folded(std::string_view word, char dash) {
  std::string text(word);
  for (char& c : text) {
    if (c == '-' || c == '_') c = dash;
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

std::string_view here_of(std::span<const OtherWord> words, const std::string& word) {
  const auto found = std::ranges::find(words, std::string_view(word), &OtherWord::word);
  return found == words.end() ? std::string_view() : found->here;
}

}  // namespace

std::string hint_for_other_key(std::string_view word) {
  const std::string_view here = here_of(kKeys, folded(word, '_'));
  return here.empty() ? "" : " Here it is " + std::string(here) + ".";
}

std::string hint_for_other_option(std::string_view word) {
  const std::string_view here = here_of(kOptions, folded(word, '-'));
  return here.empty() ? "" : ". Here it is " + std::string(here);
}

}  // namespace ddprun
