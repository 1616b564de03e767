#include "common/other_words/foreign_names.hpp"

#include <algorithm>
#include <span>

#include "common/base/split.hpp"

namespace ddprun {
namespace {

struct Equivalent {
  std::string_view names;  // the names that other tools use, separated by spaces
  std::string_view ours;
};

// `ours` starts with the equivalent key of train.json. If there is no equivalent key, `ours` describes an alternative.
constexpr Equivalent kKeys[] = {
    {"learning_rate base_lr init_lr", "'optimizer.lr'"},
    {"num_workers dataloader_num_workers", "'data.loader_threads', the number of threads per worker"},
    {"workers",
     "'data.loader_threads', the number of threads per worker; ddprun's --nproc-per-node sets the number of processes"},
    {"prefetch_factor", "'data.prefetch'"},
    {"gpus num_gpus devices num_processes nproc_per_node", "the option --nproc-per-node"},
    {"num_nodes nnodes", "the option --nnodes"},
    {"bf16 bfloat16", "\"precision\": \"bf16\""},
    {"fp16 float16 half", "\"precision\": \"fp16\""},
    {"tf32", "\"precision\": \"tf32\""},
    {"amp", "\"precision\": \"bf16\" or \"fp16\""},
    {"mixed_precision dtype torch_dtype", "'precision'"},
    {"num_epochs num_train_epochs max_epochs", "'epochs'"},
    {"steps num_steps max_iters", "'max_steps'"},
    {"bs train_batch_size global_batch_size per_device_train_batch_size", "'batch_size', summed over all workers"},
    {"per_device_eval_batch_size", "'eval_batch_size', the number of samples per forward pass of a worker"},
    {"gradient_accumulation_steps accumulate_grad_batches",
     "'micro_batch_size', the number of samples per forward pass of a worker"},
    {"max_grad_norm grad_clip gradient_clip_val", "'clip_grad_norm'"},
    {"wd", "'optimizer.weight_decay'"},
    {"adam_epsilon", "'optimizer.eps'"},
    {"adam_beta1 adam_beta2", "'optimizer.betas', a list of two numbers"},
    {"lr_scheduler scheduler", "'schedule', an object with a \"type\""},
    {"lr_scheduler_type", "'schedule.type'"},
    {"warmup num_warmup_steps", "'schedule.warmup_steps'"},
    {"save_steps save_every", "'checkpoint.every_steps'"},
    {"save_total_limit", "'checkpoint.keep'"},
    {"eval_steps val_check_interval", "'eval_every_steps'"},
    {"logging_steps log_every_n_steps", "'log.every_steps'"},
    {"random_seed seed_everything", "'seed'"},
    {"data_dir data_path", "'data.dir'"},
    {"dataset", "'data', an object with \"type\" and \"dir\""},
    {"output_dir", "the option --run-dir"},
    {"resume_from_checkpoint", "not needed: the same command with the same --run-dir resumes the run"},
    {"gradient_checkpointing", "'model.activation_checkpointing'"},
    {"sync_batchnorm", "'model.sync_batch_norm'"},
    {"label_smoothing_factor", "'label_smoothing'"},
    {"find_unused_parameters", "'ddp.find_unused_parameters'"},
};

constexpr Equivalent kOptions[] = {
    {"gpus gpus-per-node num-gpus devices nprocs nproc nporc np n num-procs num-processes num-proc workers ntasks-per-node",
     "--nproc-per-node"},
    {"num-workers",
     "--nproc-per-node; to set the number of data loading threads, write data.loader_threads=N after the path of a train.json"},
    {"num-nodes nodes num-machines", "--nnodes"},
    {"machine-rank", "--node-rank"},
    {"main-process-ip host", "--master-addr"},
    {"main-process-port port", "--master-port"},
    {"retries restarts", "--max-restarts"},
    {"output-dir", "--run-dir"},
    {"logs", "--log-dir"},
    {"lr learning-rate",
     "optimizer.lr=VALUE, written after the path of the train.json; write options of a script after the path of the script"},
    {"epochs", "epochs=N, written after the path of the train.json; write options of a script after the path of the script"},
    {"batch-size",
     "batch_size=N, written after the path of the train.json; write options of a script after the path of the script"},
    {"seed", "seed=N, written after the path of the train.json; write options of a script after the path of the script"},
    {"use-env", "not needed: workers get LOCAL_RANK in their environment"},
};

std::string folded(std::string_view name, char dash) {
  std::string text(name);
  for (char& c : text) {
    if (c == '-' || c == '_') c = dash;
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

std::string_view equivalent_of(std::span<const Equivalent> known, const std::string& name) {
  for (const auto& [names, ours] : known) {
    if (std::ranges::count(split(names, ' '), name) > 0) return ours;
  }
  return {};
}

}  // namespace

std::string hint_for_foreign_key(std::string_view name) {
  const std::string_view equivalent = equivalent_of(kKeys, folded(name, '_'));
  return equivalent.empty() ? "" : " In ddprun it is " + std::string(equivalent) + ".";
}

std::string hint_for_foreign_option(std::string_view name) {
  const std::string_view equivalent = equivalent_of(kOptions, folded(name, '-'));
  return equivalent.empty() ? "" : ". In ddprun it is " + std::string(equivalent);
}

}  // namespace ddprun
