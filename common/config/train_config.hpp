// The content of a train.json as plain values with safe defaults. Both programs read it: the launcher to validate, plan and
// show it, the worker to train. So nothing here depends on LibTorch. parse_config.hpp converts text to it;
// configs/train.schema.json describes the same keys for editors; a test checks docs/configuration.md against both.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/config/task_keys.hpp"

namespace ddprun {

// A low-rank update of linear layers (Hu et al. 2021), with PEFT's names. Only the update is trained, instead of all weights.
struct LoraConfig {
  std::int64_t rank = 0;                  // 0: none
  double alpha = 16;                      // the update is scaled by alpha / rank
  std::vector<std::string> modules{"*"};  // patterns of names: matching linear layers get an update
};

struct ModelConfig {
  enum class Type { kMlp, kCnn, kResnet18, kResnet34, kResnet50, kResnet20, kResnet56, kExported, kGpt, kLlama, kVit };
  Type type = Type::kCnn;                      // "mlp" | "cnn" | "resnet18" | ... | "exported" | "gpt" | "llama" | "vit"
  std::vector<std::int64_t> hidden{512, 512};  // mlp only: widths of the hidden layers, each 1 or more
  double dropout = 0.0;                        // mlp, cnn, gpt, vit: probability, 0 <= p < 1
  std::int64_t n_layer = 12;                   // gpt, llama and vit, as the next two: GPT-2's names and its smallest size
  std::int64_t n_head = 12;
  std::int64_t n_embd = 768;
  std::int64_t patch_size = 4;  // vit: height and width of the squares into which an image is cut
  std::int64_t n_kv_head = 0;   // llama, like the next four: heads of keys and values; 0: n_head
  std::int64_t n_inner = 0;     // width of the feed-forward layer; 0: 8/3 of n_embd, rounded up to a multiple of 256
  double rope_theta = 10000;    // Hugging Face's names and defaults from here on
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;       // the output head shares the embedding's weights
  bool activation_checkpointing = false;  // gpt, llama, vit: recompute a block's activations in the backward pass
  bool sync_batch_norm = false;           // resnets: statistics over the samples of all workers
  std::string init;                       // safetensors file of initial weights, with which all ranks start; empty: from seed
  std::string path{};                     // exported only, and required there: a folder that python/ddprun/export.py wrote
  std::vector<std::string> freeze{};      // patterns of names: matching parameters are not trained
  LoraConfig lora{};

  bool is_language_model() const { return type == Type::kGpt || type == Type::kLlama; }
};

struct AugmentConfig {
  std::int64_t crop_padding = 0;  // pixels of zero padding on each side before a random crop back to size; 0: no crop
  bool flip = false;              // mirror left-right with probability 1/2
  bool random_crop = false;       // folder only, like the next: crop at a random place, not in the middle
  double erase = 0;               // probability that a rectangle is set to 0 after normalization
  double mixup = 0;               // alpha of the Beta distribution for mixing two images; 0: no mixing
};

// A part of the training samples that is held out for evaluation, chosen by the seed. At most one of these is set.
struct ValidationConfig {
  double fraction = 0;       // below 1; 0: not set
  std::int64_t samples = 0;  // 0: not set
  bool is_set() const { return fraction > 0 || samples > 0; }
};

struct DataConfig {
  enum class Type { kIdx, kCifar10, kCifar100, kTensors, kTokens, kCsv, kArrays, kFolder, kSynthetic };
  Type type =
      Type::kIdx;   // "idx": the MNIST family's IDX files, .gz or plain | "cifar10" | "cifar100" | "tensors" | "tokens" | ...
  std::string dir;  // required except for synthetic; relative paths are relative to the train.json
  std::vector<std::int64_t> shape{1, 28, 28};            // synthetic only: shape of a sample
  std::string train_images = "train-images-idx3-ubyte";  // with or without .gz on disk: plain is preferred if both exist
  std::string train_labels = "train-labels-idx1-ubyte";
  std::string test_images = "t10k-images-idx3-ubyte";
  std::string test_labels = "t10k-labels-idx1-ubyte";
  std::string train = "train.safetensors";  // tensors only: named tensors whose first dimension is the sample
  std::string test = "test.safetensors";    // tensors only, like `train`
  std::string train_tokens = "train.bin";   // tokens only, like the next three
  std::string test_tokens = "val.bin";
  std::string tokenizer;  // for text: tokenizer.json, or a folder with it or with vocab.json and merges.txt; empty: bytes
  enum class TokenType { kUint16, kUint32 };
  TokenType token_type = TokenType::kUint16;      // for a *.bin without a header
  std::int64_t block_size = 1024;                 // tokens per sample
  std::int64_t vocab_size = 50257;                // a token at or above this is an error that reports its place
  std::optional<std::int64_t> end_of_document{};  // tokens only: the token that ends a document; absent: none does
  std::string train_table = "train.csv";          // csv only, like the next
  std::string test_table = "test.csv";
  std::string train_inputs = "train_inputs.npy";  // arrays only, like the next three: FILE.npy or FILE.safetensors:NAME
  std::string train_targets = "train_targets.npy";
  std::string test_inputs = "test_inputs.npy";
  std::string test_targets = "test_targets.npy";
  enum class Predict { kClass, kNumber };
  Predict predict = Predict::kClass;       // csv, arrays, synthetic
  std::string target = "target";           // csv, like the next three: the column to predict
  std::vector<std::string> class_names{};  // the values in that column; their number is the number of classes
  std::vector<std::string> leave_out{};    // columns that are not used as inputs
  bool standardize = true;                 // standardize the input columns, with statistics of the training samples
  std::string train_folder = "train";      // folder only, like the next four: contains one folder of images per class
  std::string test_folder = "test";
  std::int64_t image_size = 224;    // height and width of the model's input
  std::int64_t resize = 0;          // the shorter side before the crop, at least image_size; 0: image_size
  std::int64_t decode_threads = 2;  // for each batch
  std::int64_t classes =
      10;  // number of labels, for cifar given by the type; a label outside 0..classes-1 is an error that reports the sample
  std::optional<double> mean;       // of pixels scaled to 0..1; absent: exact mean of the training images
  std::optional<double> std;        // like `mean`: both or neither
  std::int64_t train_samples = 0;   // use only the first N training samples; 0: all
  std::int64_t test_samples = 0;    // the same for the test set
  std::int64_t prefetch = 4;        // batches prepared ahead by the loader's threads, 1..1024
  std::int64_t loader_threads = 1;  // each makes one batch at a time
  bool ledger = false;              // write ledger/rank-XXXXX.jsonl: the samples used in each step
  AugmentConfig augment;
  ValidationConfig validation{};

  std::int64_t class_count() const { return class_names.empty() ? classes : static_cast<std::int64_t>(class_names.size()); }
  bool is_table() const { return type == Type::kCsv || type == Type::kArrays; }
  bool predicts_numbers() const { return (is_table() || type == Type::kSynthetic) && predict == Predict::kNumber; }
};

// Parameters whose name matches `parameters`, unless they are in an earlier group.
struct ParameterGroup {
  std::string parameters;                // a pattern: * matches any run of characters
  double lr_scale = 1;                   // factor of the learning rate
  std::optional<double> weight_decay{};  // absent: the optimizer's
};

// An exponential moving average of the weights, used by evaluations and exports.
struct EmaConfig {
  double decay = 0;  // below 1; 0: off
};

struct OptimizerConfig {
  enum class Type { kSgd, kAdamw, kAdam, kLion };
  Type type = Type::kAdamw;  // "sgd" | "adamw" | "adam" | "lion"
  double lr = 1e-3;          // > 0
  enum class LrBatchRule { kNone, kLinear, kSquareRoot };
  LrBatchRule lr_batch_rule = LrBatchRule::kNone;  // "none" | "linear" | "square_root": function of batch_size / lr_base_batch
  std::int64_t lr_base_batch = 0;                  // the batch_size for which lr was chosen
  double momentum = 0.0;                           // sgd
  bool nesterov = false;                           // sgd; needs momentum > 0
  double weight_decay =
      0.0;  // sgd, adam: L2 added to the gradient; adamw, lion: decoupled. Default 0.01 for adamw, 0 for the others
  std::array<double, 2> betas{0.9, 0.999};  // adamw, adam, lion; default {0.9, 0.99} for lion
  double eps = 1e-8;                        // adamw, adam
  std::vector<ParameterGroup> groups{};
  EmaConfig ema{};
};

// Which of two values of an evaluation metric is better. kAuto: higher for "...accuracy", lower for "...loss"; any other metric
// needs an explicit mode.
enum class FigureMode { kAuto, kMin, kMax };

// lr(step) = optimizer.lr * factor(step). Warm-up: the factor rises linearly, (step + 1) / warmup_steps, before the schedule
// starts.
struct ScheduleConfig {
  enum class Type { kConstant, kStep, kCosine, kLinear, kPolynomial, kOneCycle, kWarmupStableDecay, kPlateau };
  Type type = Type::kConstant;  // "constant" | "step" | "cosine" | "linear" | "polynomial" | "one_cycle" | ...
  std::int64_t warmup_steps = 0;
  std::int64_t step_epochs = 1;  // step: multiply by gamma every this many epochs
  double gamma = 0.1;            // step
  double final_factor = 0.0;     // cosine, linear, polynomial, warmup_stable_decay: factor at the last step of the run
  double power = 1.0;            // polynomial
  double pct_start = 0.3;        // one_cycle, like the next two: PyTorch's names and defaults
  double div_factor = 25.0;
  double final_div_factor = 1e4;
  std::int64_t decay_steps = 0;  // warmup_stable_decay: number of the run's last steps; 0: a tenth of the run
  // plateau: PyTorch's names and defaults from here on, except for `metric`, which PyTorch gets as a number.
  std::string metric = "loss";  // any metric of the evaluation
  FigureMode mode = FigureMode::kAuto;
  double factor = 0.1;         // below 1
  std::int64_t patience = 10;  // number of evaluations without an improvement that are tolerated
  double threshold = 1e-4;
  enum class ThresholdMode { kRel, kAbs };
  ThresholdMode threshold_mode = ThresholdMode::kRel;
  std::int64_t cooldown = 0;
  double min_lr = 0;
  double eps = 1e-8;
};

struct EarlyStoppingConfig {
  std::int64_t patience = 0;    // number of evaluations without an improvement that ends the run; 0: off
  std::string metric = "loss";  // any metric of the evaluation
  FigureMode mode = FigureMode::kAuto;
  double min_delta = 0;  // an improvement must exceed this
};

struct CheckpointConfig {
  enum class Every { kGiven, kAuto };
  Every every = Every::kGiven;        // "given": by the next two | "auto": from measured save time and failure rate
  std::int64_t every_steps = 0;       // 0: not by steps
  double every_seconds = 0;           // 0: not by time (rank 0's clock decides)
  std::int64_t keep = 3;              // newest N kept; at least 1. One is always written at the end of the run
  std::int64_t keep_every_steps = 0;  // also keep the first one at or past each multiple permanently; 0: none
  std::int64_t keep_best = 0;         // also keep this many of the best; then a save follows each evaluation
  std::string best_by = "accuracy";   // any metric of the evaluation
  enum class BestIs { kAuto, kHighest, kLowest };
  BestIs best_is = BestIs::kAuto;  // auto: highest for "...accuracy", lowest for "...loss"; any other metric needs an explicit
                                   // value
  bool background = true;          // write in parallel with training, from a copy in host memory
  double wait_for_room_s = 300;    // how long a run's last checkpoint waits for space on a full disk
  std::string local_dir;           // on each node's local disk, absolute: a copy of each checkpoint there; empty: none
};

struct DdpConfig {
  enum class Compress { kNone, kFp16, kBf16 };
  double bucket_mb = 25;
  double first_bucket_mb = 1;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool gradient_as_bucket_view = true;
  Compress compress = Compress::kNone;   // type in which gradients are summed over the ranks: "none" | "fp16" | "bf16"
  double timeout_s = 600;                // timeout of a collective
  std::int64_t compare_every_steps = 0;  // compare the ranks' states, also before each save; 0: only after ranks were lost
};

// For precision fp16, with the names and defaults of torch.amp.GradScaler.
struct GradScalerConfig {
  double init_scale = 65536;
  double growth_factor = 2;     // above 1
  double backoff_factor = 0.5;  // below 1
  std::int64_t growth_interval = 2000;
};

struct LogConfig {
  std::int64_t every_steps = 10;  // metrics "step" events and progress
  bool tensorboard = true;
  std::int64_t trace_step = 0;   // the first step of a trace by PyTorch's profiler, counted from 1; 0: none
  std::int64_t trace_steps = 3;  // number of traced steps
  std::vector<std::int64_t> trace_ranks{0};
};

struct TrainConfig {
  std::string name = "run";  // default run directory is runs/<name>; letters, digits, '.', '_', '-'
  std::string worker;        // a custom program that trains; empty: ddptrain, or the one of --worker
  ModelConfig model;
  DataConfig data;
  std::int64_t epochs = 1;              // 1 or more
  std::int64_t max_steps = 0;           // stop after this many optimizer steps; 0: no limit
  std::int64_t batch_size = 128;        // global: shared by all workers
  std::int64_t micro_batch_size = 0;    // largest number of samples that a worker processes at a time; 0: its whole share
  std::int64_t eval_batch_size = 1000;  // per worker; only affects memory use
  std::int64_t eval_every_epochs = 1;   // 0: only at the end
  std::int64_t eval_every_steps = 0;    // in addition to the epochs; 0: not by steps
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  EarlyStoppingConfig early_stopping;
  double label_smoothing = 0.0;  // 0 <= s < 1
  double clip_grad_norm = 0.0;   // 0: off; else the largest total 2-norm of the gradients
  double clip_grad_value = 0.0;  // 0: off; else the largest absolute value in a gradient, applied before the norm
  enum class NotFinite { kStop, kSkip };
  NotFinite not_finite = NotFinite::kStop;  // "stop" | "skip": reaction to a step with a loss or gradients that are not finite
  std::int64_t max_skipped_steps = 10;      // largest number of skipped steps in a row
  std::uint64_t seed = 0;                   // at most 2^53
  enum class Device { kAuto, kCpu, kCuda };
  Device device = Device::kAuto;  // "auto" | "cpu" | "cuda"
  enum class Precision { kFp32, kTf32, kBf16, kFp16 };
  Precision precision = Precision::kFp32;  // "fp32" | "tf32" | "bf16" | "fp16": for forward and backward; weights are float32
  bool channels_last = false;              // memory layout of convolutions
  bool deterministic = false;              // only operators with bitwise reproducible results
  CheckpointConfig checkpoint;
  DdpConfig ddp;
  GradScalerConfig grad_scaler;
  LogConfig log;
  TaskConfig task;  // the keys of a custom worker program
};

}  // namespace ddprun
