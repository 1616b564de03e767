// The content of a train.json as plain structs with safe defaults. The launcher uses them to validate, plan and show a job, and
// the worker uses them to train. The launcher is built without LibTorch, so these structs must not depend on it.
// parse_config.hpp parses a train.json into a TrainConfig. configs/train.schema.json describes the same keys for editors, and
// docs/configuration.md for users. A test compares both with this file.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/config/task_keys.hpp"

namespace ddprun {

// LoRA: a low-rank update of linear layers (Hu et al. 2021). The keys have the same names as in the library PEFT. Only the
// update is trained, and the weights of these layers stay fixed.
struct LoraConfig {
  std::int64_t rank = 0;                  // rank of the update matrices; 0: LoRA is off
  double alpha = 16;                      // the update is scaled by alpha / rank
  std::vector<std::string> modules{"*"};  // name patterns of the linear layers that get an update
};

struct ModelConfig {
  enum class Type { kMlp, kCnn, kResnet18, kResnet34, kResnet50, kResnet20, kResnet56, kExported, kGpt, kLlama, kVit, kAuto };
  // "mlp" | "cnn" | "resnet18" | ... | "auto". A parsed config never has the type kAuto, because the parser replaces it.
  Type type = Type::kCnn;
  std::vector<std::int64_t> hidden{512, 512};  // mlp only: widths of the hidden layers, each 1 or more
  double dropout = 0.0;                        // mlp, cnn, gpt, vit: dropout probability, 0 <= p < 1
  std::int64_t n_layer = 12;  // gpt, llama, vit; this key and the next two have the names and defaults of the smallest GPT-2
  std::int64_t n_head = 12;
  std::int64_t n_embd = 768;
  std::int64_t patch_size = 4;  // vit: height and width of an image patch in pixels
  // number of key and value heads; 0: n_head. The keys from here to tie_word_embeddings are for llama only.
  std::int64_t n_kv_head = 0;
  std::int64_t n_inner = 0;   // width of the feed-forward layer; 0: 8/3 * n_embd, rounded up to a multiple of 256
  std::int64_t head_dim = 0;  // width of a head; 0: n_embd / n_head
  double rope_theta = 10000;  // this key and rms_norm_eps have the names and defaults of Hugging Face
  enum class RopeScaling { kNone, kLinear, kLlama3 };
  RopeScaling rope_scaling = RopeScaling::kNone;
  double rope_factor = 8;  // linear, llama3; this key and the next three have the defaults of Llama 3.1
  double rope_low_freq_factor = 1;
  double rope_high_freq_factor = 4;
  std::int64_t rope_original_positions = 8192;
  double rms_norm_eps = 1e-6;
  enum class AttentionBias { kNone, kQkv, kAll };
  AttentionBias attention_bias = AttentionBias::kNone;  // which linear layers of the attention have a bias
  bool qk_norm = false;                                 // RMSNorm of each head's queries and keys
  bool tie_word_embeddings = false;                     // the output head shares the embedding's weights
  // gpt only: if the position table in `init` is longer than block_size, use only its first block_size rows
  bool crop_positions = false;
  bool activation_checkpointing = false;  // gpt, llama, vit: recompute a block's activations in the backward pass
  bool sync_batch_norm = false;           // resnets only: batch norm uses the statistics over the samples of all workers
  std::string init;    // file or folder of the initial weights; if empty, the weights are random, derived from `seed`
  std::string path{};  // exported only, required: a folder written by python/ddprun/export.py
  std::vector<std::string> freeze{};  // name patterns of the parameters that are not trained
  LoraConfig lora{};

  bool is_language_model() const { return type == Type::kGpt || type == Type::kLlama; }
  // These functions return the effective value of a key. If the key is 0, the value follows from other keys.
  std::int64_t key_value_heads() const { return n_kv_head > 0 ? n_kv_head : n_head; }
  std::int64_t head_width() const { return head_dim > 0 ? head_dim : n_head > 0 ? n_embd / n_head : 0; }
  std::int64_t inner_width() const {
    constexpr std::int64_t kMultiple = 256;
    return n_inner > 0 ? n_inner : (n_embd * 8 / 3 + kMultiple - 1) / kMultiple * kMultiple;
  }
};

struct AugmentConfig {
  // pixels of zero padding on each side, followed by a random crop to the original size; 0: no crop
  std::int64_t crop_padding = 0;
  bool flip = false;         // mirror left-right with probability 1/2
  bool random_crop = false;  // crop at a random place instead of the center; this key and the next are for type folder only
  double erase = 0;          // probability that a rectangle is set to 0 after normalization
  double mixup = 0;          // alpha of the Beta distribution in mixup (Zhang et al. 2018); 0: off
};

// The training samples that are held out for evaluation. `seed` determines which samples. At most one of the two members is
// set.
struct ValidationConfig {
  double fraction = 0;       // fraction of the training samples, below 1; 0: not set
  std::int64_t samples = 0;  // number of samples; 0: not set
  bool is_set() const { return fraction > 0 || samples > 0; }
};

struct DataConfig {
  enum class Type { kIdx, kCifar10, kCifar100, kTensors, kTokens, kCsv, kArrays, kFolder, kSynthetic, kTable };
  Type type =
      Type::kIdx;  // "idx" (IDX files like MNIST's files, plain or .gz) | "cifar10" | "cifar100" | "tensors" | "tokens" | ...
  // Folder of the data set, required for all types except synthetic. A relative path is relative to the folder of train.json.
  std::string dir;
  std::vector<std::int64_t> shape{1, 28, 28};            // synthetic only: shape of a sample
  std::string train_images = "train-images-idx3-ubyte";  // if FILE and FILE.gz exist, FILE is read
  std::string train_labels = "train-labels-idx1-ubyte";
  std::string test_images = "t10k-images-idx3-ubyte";
  std::string test_labels = "t10k-labels-idx1-ubyte";
  std::string train = "train.safetensors";  // tensors only: the first dimension of each tensor is the sample
  std::string test = "test.safetensors";    // tensors only, like `train`
  std::string train_tokens = "train.bin";   // tokens only, like the next three keys
  std::string test_tokens = "val.bin";
  // path of a tokenizer.json, or of a folder with tokenizer.json or with vocab.json and merges.txt; if empty, a token is a byte
  std::string tokenizer;
  enum class TokenType { kUint16, kUint32 };
  TokenType token_type = TokenType::kUint16;  // used for a *.bin file without a header
  std::int64_t block_size = 1024;             // tokens per sample
  std::int64_t vocab_size = 50257;            // a token >= vocab_size is an error; the message contains its position
  // tokens only: the token at the end of each document; absent: documents are not separated
  std::optional<std::int64_t> end_of_document{};
  std::string train_table = "train.csv";  // csv and table, like the next key: the file with the training rows
  std::string test_table = "test.csv";    // table: if empty, test_fraction of the rows of train_table are the test rows
  // fraction of the rows in the test set, chosen by `seed`; this key and the next five are for type table only
  double test_fraction = 0.2;
  // columns that are read as numbers; a text that is not a number counts as a missing value
  std::vector<std::string> as_number{};
  std::vector<std::string> as_one_hot{};      // columns to read as categories, with one input for each category
  std::vector<std::string> as_embedding{};    // columns to read as categories, with a trained vector for each category
  std::vector<std::string> missing_values{};  // texts that mean a missing value, in addition to NA, null and others
  // not a key: path of the column plan that the training has stored (columns.json); if empty or absent, the plan is made from
  // the training rows
  std::string columns_file{};
  std::string train_inputs = "train_inputs.npy";  // arrays only, like the next three keys: FILE.npy or FILE.safetensors:NAME
  std::string train_targets = "train_targets.npy";
  std::string test_inputs = "test_inputs.npy";
  std::string test_targets = "test_targets.npy";
  enum class Predict { kClass, kNumber };
  Predict predict = Predict::kClass;       // csv, table, arrays, synthetic
  std::string target = "target";           // csv and table, like the next two keys: the column to predict
  std::vector<std::string> class_names{};  // the class labels in the target column; their number replaces `classes`
  std::vector<std::string> leave_out{};    // columns that are not inputs of the model
  // csv only: scale each input column to mean 0 and standard deviation 1 over the training samples
  bool standardize = true;
  // image folders only, like the next four keys: a folder that has one subfolder of images for each class
  std::string train_folder = "train";
  std::string test_folder = "test";
  std::int64_t image_size = 224;    // height and width of the model's input
  std::int64_t resize = 0;          // pixels of the shorter side before the crop, at least image_size; 0 means image_size
  std::int64_t decode_threads = 2;  // threads per worker that decode the images of a batch
  std::int64_t classes =
      10;  // number of classes, fixed for cifar; a label outside 0..classes-1 is an error, and the message names the sample
  // mean of the pixels, in 0..1; if absent, the mean of the training images, or for type folder the mean of ImageNet
  std::optional<double> mean;
  std::optional<double> std;        // pixel standard deviation; set both `mean` and `std`, or neither
  std::int64_t train_samples = 0;   // use only the first N training samples; 0: all of them, or 10,000 for synthetic data
  std::int64_t test_samples = 0;    // use only the first N test samples; 0: all of them, or 10,000 for synthetic data
  std::int64_t prefetch = 4;        // number of batches that the loader threads prepare ahead, 1..1024
  std::int64_t loader_threads = 1;  // threads per worker that prepare batches, one batch per thread
  bool ledger = false;              // write ledger/rank-XXXXX.jsonl: the samples used in each step
  AugmentConfig augment;
  ValidationConfig validation{};

  std::int64_t class_count() const { return class_names.empty() ? classes : static_cast<std::int64_t>(class_names.size()); }
  bool is_table() const { return type == Type::kCsv || type == Type::kArrays || type == Type::kTable; }
  bool predicts_numbers() const { return (is_table() || type == Type::kSynthetic) && predict == Predict::kNumber; }
};

// Optimizer settings for the parameters whose name matches a pattern. A parameter belongs to the first group that matches it.
struct ParameterGroup {
  std::string parameters;                // name pattern; * matches any sequence of characters
  double lr_scale = 1;                   // factor of the learning rate
  std::optional<double> weight_decay{};  // if absent, optimizer.weight_decay applies
};

// An exponential moving average (EMA) of the weights. Evaluations and exports use the average instead of the weights.
struct EmaConfig {
  double decay = 0;  // fraction of the average that each step keeps, below 1; 0: no average
};

struct OptimizerConfig {
  enum class Type { kSgd, kAdamw, kAdam, kLion };
  Type type = Type::kAdamw;  // "sgd" | "adamw" | "adam" | "lion"
  double lr = 1e-3;          // > 0
  enum class LrBatchRule { kNone, kLinear, kSquareRoot };
  // how lr depends on the batch size: not at all, multiplied by batch_size / lr_base_batch, or by the square root of this
  // ratio
  LrBatchRule lr_batch_rule = LrBatchRule::kNone;
  std::int64_t lr_base_batch = 0;  // the batch size for which lr was tuned
  double momentum = 0.0;           // sgd
  bool nesterov = false;           // sgd; requires momentum > 0
  double weight_decay =
      0.0;  // sgd, adam: an L2 term added to the gradient; adamw, lion: decoupled. Default: 0.01 for adamw, 0 for the others
  std::array<double, 2> betas{0.9, 0.999};  // for adamw, adam and lion; default {0.9, 0.99} for lion
  double eps = 1e-8;                        // adamw, adam
  std::vector<ParameterGroup> groups{};
  EmaConfig ema{};
};

// Whether a higher or a lower value of an evaluation metric is better. kMin: lower; kMax: higher. kAuto: higher if the metric's
// name ends in "accuracy", lower if it ends in "loss". Any other metric needs an explicit mode.
enum class MetricMode { kAuto, kMin, kMax };
using FigureMode = MetricMode;  // the name of MetricMode in earlier versions, kept for programs that use that name

// The learning-rate schedule: lr(step) = optimizer.lr * factor(step). During warm-up the factor is (step + 1) / warmup_steps.
// After warmup_steps the schedule of `type` starts.
struct ScheduleConfig {
  enum class Type { kConstant, kStep, kCosine, kLinear, kPolynomial, kOneCycle, kWarmupStableDecay, kPlateau };
  Type type = Type::kConstant;  // "constant" | "step" | "cosine" | "linear" | "polynomial" | "one_cycle" | ...
  std::int64_t warmup_steps = 0;
  std::int64_t step_epochs = 1;  // type "step": the factor is multiplied by gamma every step_epochs epochs
  double gamma = 0.1;            // type "step": factor for every step_epochs epochs
  double final_factor = 0.0;     // cosine, linear, polynomial, warmup_stable_decay: factor at the last step of the run
  double power = 1.0;            // polynomial: the exponent
  double pct_start = 0.3;        // type "one_cycle": this key and the next two have PyTorch's names and defaults
  double div_factor = 25.0;
  double final_div_factor = 1e4;
  std::int64_t decay_steps = 0;  // warmup_stable_decay: number of steps of the decay at the end; 0: a tenth of the run
  // Type "plateau": from here on, the keys have the names and defaults of PyTorch's ReduceLROnPlateau. `metric` does not exist
  // in PyTorch, where the caller passes the value of the metric instead.
  std::string metric = "loss";  // name of any metric of the evaluation
  MetricMode mode = MetricMode::kAuto;
  double factor = 0.1;         // below 1
  std::int64_t patience = 10;  // lr is reduced after more than this number of evaluations without an improvement
  double threshold = 1e-4;
  enum class ThresholdMode { kRel, kAbs };
  ThresholdMode threshold_mode = ThresholdMode::kRel;
  std::int64_t cooldown = 0;
  double min_lr = 0;
  double eps = 1e-8;
};

struct EarlyStoppingConfig {
  std::int64_t patience = 0;    // the run ends after this number of evaluations without an improvement; 0: never
  std::string metric = "loss";  // name of any metric of the evaluation
  MetricMode mode = MetricMode::kAuto;
  double min_delta = 0;  // a change of at most this value is not an improvement
};

struct CheckpointConfig {
  enum class Every { kGiven, kAuto };
  // kGiven: save by every_steps and every_seconds. kAuto: compute the interval from the measured save time and failure rate.
  Every every = Every::kGiven;
  std::int64_t every_steps = 0;       // save every N steps; 0: off
  double every_seconds = 0;           // save every N seconds by rank 0's clock; 0: off
  std::int64_t keep = 3;              // keep the newest N checkpoints, at least 1; the end of a run always writes one
  std::int64_t keep_every_steps = 0;  // never delete the first checkpoint at or after each multiple of N steps; 0: off
  std::int64_t keep_best = 0;         // also keep the N best checkpoints; each evaluation is then followed by a save
  std::string best_by = "accuracy";   // name of any metric of the evaluation
  enum class BestIs { kAuto, kHighest, kLowest };
  BestIs best_is = BestIs::kAuto;  // kAuto: like MetricMode::kAuto
  bool background = true;          // write checkpoints from a copy in host memory while training continues
  double wait_for_room_s = 300;    // if the disk is full, how long the last checkpoint of a run waits for space
  // absolute path on each node's own disk for copies of the newest two checkpoints; no copies if empty
  std::string local_dir;
};

struct DdpConfig {
  enum class Backend { kAuto, kShared, kGloo, kNccl };
  enum class Compress { kNone, kFp16, kBf16 };
  Backend backend = Backend::kAuto;  // "auto" | "shared" | "gloo" | "nccl"
  double bucket_mb = 25;
  double first_bucket_mb = 1;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool gradient_as_bucket_view = true;
  Compress compress = Compress::kNone;  // "none" | "fp16" | "bf16": data type of the all-reduce of gradients
  double timeout_s = 600;               // timeout of a collective in seconds
  // compare the ranks' states every N steps and before each save; 0: only after a rank was lost
  std::int64_t compare_every_steps = 0;
};

// Loss scaling for precision fp16. The names and defaults are the same as in torch.amp.GradScaler.
struct GradScalerConfig {
  double init_scale = 65536;
  double growth_factor = 2;     // above 1
  double backoff_factor = 0.5;  // below 1
  std::int64_t growth_interval = 2000;
};

struct LogConfig {
  std::int64_t every_steps = 10;  // write a "step" event to the metrics, and the progress, every N steps
  bool tensorboard = true;
  std::int64_t trace_step = 0;   // first step that PyTorch's profiler traces, counted from 1; 0: no trace
  std::int64_t trace_steps = 3;  // number of steps in the trace
  std::vector<std::int64_t> trace_ranks{0};
};

struct TrainConfig {
  std::string name = "run";  // letters, digits, '.', '_', '-'; the default run directory is runs/<name>
  std::string worker;        // custom worker program; if empty, the program of --worker, or else ddptrain
  ModelConfig model;
  DataConfig data;
  std::int64_t epochs = 1;            // 1 or more
  std::int64_t min_steps = 0;         // minimum number of optimizer steps; the run has more epochs if necessary; 0: off
  std::int64_t max_steps = 0;         // stop after this many optimizer steps; 0: no limit
  std::int64_t batch_size = 128;      // global batch size: samples of all workers in one step
  std::int64_t micro_batch_size = 0;  // maximum number of samples per forward pass of a worker; 0: all its samples of the step
  // samples per worker and forward pass in an evaluation; affects the memory use, not the result
  std::int64_t eval_batch_size = 1000;
  std::int64_t eval_every_epochs = 1;  // 0: evaluate only at the end of the run
  std::int64_t eval_every_steps = 0;   // evaluate every N steps too, in addition to eval_every_epochs; 0: off
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  EarlyStoppingConfig early_stopping;
  double label_smoothing = 0.0;  // 0 <= s < 1
  double clip_grad_norm = 0.0;   // maximum 2-norm of all gradients together: larger ones are scaled down; 0: no clipping
  double clip_grad_value = 0.0;  // maximum absolute value of a gradient element, applied before clip_grad_norm; 0: off
  enum class NotFinite { kStop, kSkip };
  NotFinite not_finite = NotFinite::kStop;  // "stop" | "skip": reaction to a step whose loss or gradients are not finite
  std::int64_t max_skipped_steps = 10;      // the run stops after more than this number of skipped steps in a row
  std::uint64_t seed = 0;                   // at most 2^53, so that a JSON number represents it exactly
  enum class Device { kAuto, kCpu, kCuda };
  Device device = Device::kAuto;  // "auto" | "cpu" | "cuda"
  enum class Precision { kFp32, kTf32, kBf16, kFp16 };
  Precision precision = Precision::kFp32;  // "fp32" | "tf32" | "bf16" | "fp16": forward and backward pass; weights stay float32
  bool channels_last = false;              // channels-last memory layout for convolutions
  bool deterministic = false;              // use only operators whose results are bit-identical between runs
  CheckpointConfig checkpoint;
  DdpConfig ddp;
  GradScalerConfig grad_scaler;
  LogConfig log;
  TaskConfig task;  // values of the config keys that a custom worker program defines
};

}  // namespace ddprun
