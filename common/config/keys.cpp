// The entries of the table, as shown to users in the schema and the reference. The code that reads and prints configs contains
// no key names, except in rules between two keys (rules.cpp).
//
// Note [Why this file is long]
// It is one table with long rows. Its order is the order in which keys are printed.
#include "common/config/keys.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "common/config/parameter_groups.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::json;

// Pixels are within 0..1. Division by a smaller number gives values with which training cannot work.
constexpr double kSmallestStd = 1e-6;
constexpr std::int64_t kMany = 1'000'000'000;  // keeps products of counts far from overflow

template <class T>
Json to_json(const T& value) {
  return value;
}
template <class T>
Json to_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <class T>
struct Reading {
  static T from(const Json& json) { return json.get<T>(); }
};
template <>
struct Reading<std::vector<ParameterGroup>> {
  static std::vector<ParameterGroup> from(const Json& json) { return groups_from_json(json); }
};
template <class T>
struct Reading<std::optional<T>> {
  static std::optional<T> from(const Json& json) { return json.is_null() ? std::nullopt : std::optional<T>(json.get<T>()); }
};

Json to_json(const std::vector<ParameterGroup>& groups) {
  return groups_to_json(groups);
}

// Extra properties of a key; in the table they follow its meaning.
struct Traits {
  bool required = false;
  bool may_change = false;
  bool of_whole_job = false;
  bool added_later = false;
  std::vector<std::string_view> of_types{};
  std::string default_text{};
};

// `access` takes a TrainConfig& or const TrainConfig& and returns the member.
template <class Access>
Key key(std::string section, std::string name, Kind kind, std::string doc, Access access, Traits traits = {}) {
  using T = std::remove_cvref_t<decltype(access(std::declval<TrainConfig&>()))>;
  Key out{std::move(section),
          std::move(name),
          std::move(kind),
          std::move(doc),
          traits.required,
          traits.may_change,
          traits.of_whole_job,
          traits.added_later,
          std::move(traits.of_types),
          std::move(traits.default_text),
          {},
          {}};
  if constexpr (std::is_enum_v<T>) {
    const std::vector<std::string_view> names = std::get<NameKind>(out.kind).names;
    out.get = [access, names](const TrainConfig& c) { return Json(names.at(static_cast<std::size_t>(access(c)))); };
    out.set = [access, names](TrainConfig& c, const Json& json) {
      const auto at = std::find(names.begin(), names.end(), json.get_ref<const std::string&>());
      access(c) = static_cast<T>(at - names.begin());
    };
  } else {
    out.get = [access](const TrainConfig& c) { return to_json(access(c)); };
    out.set = [access](TrainConfig& c, const Json& json) { access(c) = Reading<T>::from(json); };
  }
  return out;
}

// Writes the accessor for a const and a non-const TrainConfig. Its argument names a member, so parentheses around it are not
// possible.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define MEMBER(path)     \
  [](auto& c) -> auto& { \
    return c.path;       \
  }
// NOLINTEND(bugprone-macro-parentheses)

const Traits kMayChange{.may_change = true};
const Traits kMayChangeForAll{.may_change = true, .of_whole_job = true};
const Traits kAddedLater{.added_later = true};

Traits only(std::vector<std::string_view> types) {
  return Traits{.of_types = std::move(types)};
}

Traits later_only(std::vector<std::string_view> types) {
  return Traits{.added_later = true, .of_types = std::move(types)};
}

std::vector<Key> make_keys() {
  std::vector<Key> keys{
      key("", "name", TextKind{.name_only = true},
          "Name of the run; its directory is runs/<name>. Letters, digits, '.', '_' and '-', beginning with a letter, digit or "
          "'_'.",
          MEMBER(name)),
      key("", "worker", TextKind{.may_be_empty = true, .path = true},
          "Program of yours that trains, relative to the config file; --worker wins. Empty: ddptrain.", MEMBER(worker),
          kMayChange),
      key("", "epochs", IntegerKind{1, kMany}, "Passes over the training set.", MEMBER(epochs), kMayChangeForAll),
      key("", "max_steps", IntegerKind{0, kMany * 1000}, "Stop after this many optimizer steps. 0: no limit.",
          MEMBER(max_steps), kMayChangeForAll),
      key("", "batch_size", IntegerKind{1, kMany}, "Samples of one optimizer step, shared by all workers.", MEMBER(batch_size)),
      key("", "micro_batch_size", IntegerKind{0, kMany},
          "Most samples that one worker puts through the model at once; gradients are accumulated. 0: its whole share.",
          MEMBER(micro_batch_size), kMayChange),
      key("", "eval_batch_size", IntegerKind{1, kMany},
          "Samples that one worker evaluates at once. Changes memory and speed, not the result.", MEMBER(eval_batch_size),
          kMayChange),
      key("", "eval_every_epochs", IntegerKind{0, kMany}, "Evaluate on the test set every so many epochs. 0: only at the end.",
          MEMBER(eval_every_epochs), kMayChangeForAll),
      key("", "eval_every_steps", IntegerKind{0, kMany}, "Evaluate every so many optimizer steps as well. 0: not by steps.",
          MEMBER(eval_every_steps), kMayChangeForAll),
      key("", "label_smoothing", NumberKind{.max = 1, .below_max = true}, "Share of the target spread over all classes.",
          MEMBER(label_smoothing)),
      key("", "clip_grad_norm", NumberKind{},
          "Scale gradients down to this total 2-norm when theirs is larger. 0: leave them alone.", MEMBER(clip_grad_norm)),
      key("", "clip_grad_value", NumberKind{},
          "Cut each element of a gradient to at most this absolute value, before clip_grad_norm. 0: leave them alone.",
          MEMBER(clip_grad_value), kAddedLater),
      key("", "not_finite", NameKind{{"stop", "skip"}},
          "What follows a step that is NaN or infinite on any worker. stop: the run ends if the loss is so. skip: if the "
          "loss or a gradient is so, the step changes nothing, and training continues.",
          MEMBER(not_finite), kMayChangeForAll),
      key("", "max_skipped_steps", IntegerKind{1, kMany},
          "With \"not_finite\": \"skip\": when more steps than this are skipped one after the other, the run ends.",
          MEMBER(max_skipped_steps), kMayChangeForAll),
      key("", "seed", IntegerKind{}, "Seed of initial weights, data order, augmentation and dropout.", MEMBER(seed)),
      key("", "device", NameKind{{"auto", "cpu", "cuda"}}, "Where to train. auto: on GPUs when there are any.", MEMBER(device),
          kMayChange),
      key("", "precision", NameKind{{"fp32", "tf32", "bf16", "fp16"}},
          "What matrix products and convolutions compute in; weights, moments and sums stay float32. tf32: with fewer bits on "
          "a GPU's tensor cores, without effect on a CPU. bf16, fp16: PyTorch's autocast; fp16 with its GradScaler.",
          MEMBER(precision), kMayChange),
      key("", "channels_last", BoolKind{},
          "Keep pictures and convolutions' weights with their channels last in memory, which GPUs' convolutions are fastest "
          "with. Changes speed, and the result by rounding.",
          MEMBER(channels_last), kMayChangeForAll),
      key("", "deterministic", BoolKind{},
          "Use only operators that compute the same bits each time, as torch.use_deterministic_algorithms does. One that can't "
          "ends the run with its name.",
          MEMBER(deterministic), kMayChange),

      key("model", "type",
          NameKind{
              {"mlp", "cnn", "resnet18", "resnet34", "resnet50", "resnet20", "resnet56", "exported", "gpt", "llama", "vit"}},
          "mlp: fully connected layers. cnn: two convolutions and two layers. resnet18, 34, 50: torchvision's networks, for "
          "small images. resnet20, 56: those of their paper for CIFAR. exported: a PyTorch model of yours, written by "
          "python/ddprun/export.py. gpt: GPT-2. llama: Llama. vit: the vision transformer, with timm's names.",
          MEMBER(model.type)),
      key("model", "hidden", IntegerListKind{}, "Widths of the hidden layers.", MEMBER(model.hidden), only({"mlp"})),
      key("model", "dropout", NumberKind{.max = 1, .below_max = true},
          "Probability of dropout: before the last layer, in a gpt in all of GPT-2's places. In a vit behind positions, in "
          "attention and behind each layer of a block.",
          MEMBER(model.dropout), only({"mlp", "cnn", "gpt", "vit"})),
      key("model", "n_layer", IntegerKind{1, 10'000}, "Blocks.", MEMBER(model.n_layer), only({"gpt", "llama", "vit"})),
      key("model", "n_head", IntegerKind{1, 100'000}, "Heads of attention of a block.", MEMBER(model.n_head),
          only({"gpt", "llama", "vit"})),
      key("model", "n_embd", IntegerKind{1, 1'000'000}, "Width; n_head divides it.", MEMBER(model.n_embd),
          only({"gpt", "llama", "vit"})),
      key("model", "patch_size", IntegerKind{1, 4096},
          "Height and width of the squares that a picture is cut into; divides both sides of it.", MEMBER(model.patch_size),
          later_only({"vit"})),
      key("model", "n_kv_head", IntegerKind{0, 100'000},
          "Heads of keys and values; each is shared by as many heads of queries. 0: as many as n_head.",
          MEMBER(model.n_kv_head), later_only({"llama"})),
      key("model", "n_inner", IntegerKind{0, 10'000'000},
          "Width between the two halves of a block's second part. 0: 8/3 of n_embd, rounded up to a multiple of 256.",
          MEMBER(model.n_inner), later_only({"llama"})),
      key("model", "rope_theta", NumberKind{.above_min = true}, "Base of the rotary positions' wavelengths.",
          MEMBER(model.rope_theta), later_only({"llama"})),
      key("model", "rms_norm_eps", NumberKind{}, "Added to the mean square that RMSNorm divides by the root of.",
          MEMBER(model.rms_norm_eps), later_only({"llama"})),
      key("model", "tie_word_embeddings", BoolKind{}, "The last layer's weight is the embedding's.",
          MEMBER(model.tie_word_embeddings), later_only({"llama"})),
      key("model", "activation_checkpointing", BoolKind{},
          "Keep only what each block is given, and compute the block again in the backward pass. Takes less memory and more "
          "time, and changes no bit.",
          MEMBER(model.activation_checkpointing), Traits{.may_change = true, .of_types = {"gpt", "llama", "vit"}}),
      key("model", "sync_batch_norm", BoolKind{},
          "Batch norm takes mean and variance over the samples of all workers, as torch.nn.SyncBatchNorm does, and not over "
          "each worker's own.",
          MEMBER(model.sync_batch_norm), later_only({"resnet18", "resnet34", "resnet50", "resnet20", "resnet56"})),
      key("model", "init", TextKind{.may_be_empty = true, .path = true},
          "safetensors file of initial weights, relative to the config file. Empty: drawn from the seed.", MEMBER(model.init)),
      key("model", "path", TextKind{.may_be_empty = true, .path = true},
          "Folder of the exported model, relative to the config file; needed for this type. What is in it may not change "
          "within "
          "a run, its place may.",
          MEMBER(model.path), Traits{.may_change = true, .of_types = {"exported"}}),
      key("model", "freeze", TextListKind{},
          "Patterns of parameters' names, such as \"layer1.*\": those are saved and not trained. * is any run of characters.",
          MEMBER(model.freeze), kAddedLater),

      key("model.lora", "rank", IntegerKind{0, 1'000'000},
          "Numbers between the two matrices of an update. 0: no updates, all weights are trained.", MEMBER(model.lora.rank),
          kAddedLater),
      key("model.lora", "alpha", NumberKind{.above_min = true}, "An update is scaled by alpha / rank.",
          MEMBER(model.lora.alpha), kAddedLater),
      key("model.lora", "modules", TextListKind{},
          "Patterns of linear layers' names, such as \"*.c_attn\": those get an update. * is any run of characters.",
          MEMBER(model.lora.modules), kAddedLater),

      key("data", "type", NameKind{{"idx", "cifar10", "cifar100", "tensors", "tokens", "csv", "arrays", "folder", "synthetic"}},
          "idx: files of the MNIST family, plain or .gz. cifar10, cifar100: their binary version. tensors: safetensors files "
          "with the tensors that an exported model "
          "takes. tokens: text or token files, for a gpt. csv: lines of numbers. arrays: .npy or safetensors files of numbers. "
          "folder: JPEG and PNG files, a folder for each class. synthetic: made up, without a file.",
          MEMBER(data.type)),
      key("data", "dir", TextKind{.path = true}, "Folder of the data files, relative to the config file.", MEMBER(data.dir),
          Traits{.required = true,
                 .may_change = true,
                 .of_types = {"idx", "cifar10", "cifar100", "tensors", "tokens", "csv", "arrays", "folder"}}),
      key("data", "shape", IntegerListKind{},
          "Sizes of what a model is given of each sample: [channels, height, width] of a picture.", MEMBER(data.shape),
          later_only({"synthetic"})),
      key("data", "train_images", TextKind{}, "File of training images, with or without .gz on disk.",
          MEMBER(data.train_images), only({"idx"})),
      key("data", "train_labels", TextKind{}, "File of training labels.", MEMBER(data.train_labels), only({"idx"})),
      key("data", "test_images", TextKind{}, "File of test images.", MEMBER(data.test_images), only({"idx"})),
      key("data", "test_labels", TextKind{}, "File of test labels.", MEMBER(data.test_labels), only({"idx"})),
      key("data", "train", TextKind{}, "safetensors file of training samples: the first dimension of each tensor counts them.",
          MEMBER(data.train), only({"tensors"})),
      key("data", "test", TextKind{}, "safetensors file of test samples.", MEMBER(data.test), only({"tensors"})),
      key("data", "train_tokens", TextKind{},
          "File to train on. *.bin: tokens as nanoGPT or llm.c write them. Other: text, each byte is a token unless there is a "
          "tokenizer.",
          MEMBER(data.train_tokens), only({"tokens"})),
      key("data", "test_tokens", TextKind{}, "File to evaluate on.", MEMBER(data.test_tokens), only({"tokens"})),
      key("data", "tokenizer", TextKind{.may_be_empty = true, .path = true},
          "Byte-level BPE for text, relative to the config file: a tokenizer.json, or a folder with it or with vocab.json and "
          "merges.txt. Empty: each byte is a token.",
          MEMBER(data.tokenizer), Traits{.may_change = true, .of_types = {"tokens"}}),
      key("data", "token_type", NameKind{{"uint16", "uint32"}}, "Of a *.bin file without llm.c's header, which says it itself.",
          MEMBER(data.token_type), later_only({"tokens"})),
      key("data", "block_size", IntegerKind{1, 10'000'000},
          "Tokens of a sample. Of synthetic data for a gpt or a llama, as the next.", MEMBER(data.block_size),
          only({"tokens", "synthetic"})),
      key("data", "vocab_size", IntegerKind{1, 100'000'000}, "Number of different tokens, which count from 0. Text: 256.",
          MEMBER(data.vocab_size), only({"tokens", "synthetic"})),
      key("data", "end_of_document", IntegerKind{.max = 100'000'000, .nullable = true},
          "The token that ends a document, as its last one. Then a sample may hold several: each token sees its own document "
          "only, positions count from its begin, and what follows this token is not predicted.",
          MEMBER(data.end_of_document),
          Traits{.added_later = true, .of_types = {"tokens"}, .default_text = "no documents are told apart"}),
      key("data", "train_table", TextKind{}, "CSV file of training samples. Its first line names the columns.",
          MEMBER(data.train_table), later_only({"csv"})),
      key("data", "test_table", TextKind{}, "CSV file of test samples, with the same columns.", MEMBER(data.test_table),
          later_only({"csv"})),
      key("data", "train_inputs", TextKind{},
          "What a model is given of each training sample: FILE.npy or FILE.safetensors:NAME. The first dimension counts the "
          "samples.",
          MEMBER(data.train_inputs), later_only({"arrays"})),
      key("data", "train_targets", TextKind{}, "What is to be predicted of them.", MEMBER(data.train_targets),
          later_only({"arrays"})),
      key("data", "test_inputs", TextKind{}, "What a model is given of each test sample.", MEMBER(data.test_inputs),
          later_only({"arrays"})),
      key("data", "test_targets", TextKind{}, "What is to be predicted of them.", MEMBER(data.test_targets),
          later_only({"arrays"})),
      key("data", "predict", NameKind{{"class", "number"}},
          "class: one of some classes, by cross entropy. number: numbers, by the mean squared error.", MEMBER(data.predict),
          later_only({"csv", "arrays", "synthetic"})),
      key("data", "target", TextKind{}, "The column that is to be predicted.", MEMBER(data.target), later_only({"csv"})),
      key("data", "class_names", TextListKind{},
          "What stands in that column for each class, no name twice; then there are as many classes. Empty: numbers from 0 to "
          "below "
          "classes.",
          MEMBER(data.class_names), later_only({"csv"})),
      key("data", "leave_out", TextListKind{.of_empty_ones = true},
          "Columns that nothing is predicted from; \"\" names one without a name.", MEMBER(data.leave_out),
          later_only({"csv"})),
      key("data", "standardize", BoolKind{},
          "Take the mean of the samples that are trained on from each column, and divide it by their standard deviation.",
          MEMBER(data.standardize), later_only({"csv"})),
      key("data", "train_folder", TextKind{}, "Folder of training pictures. Its folders are the classes, sorted by name.",
          MEMBER(data.train_folder), later_only({"folder"})),
      key("data", "test_folder", TextKind{}, "Folder of test pictures, with the same folders in it.", MEMBER(data.test_folder),
          later_only({"folder"})),
      key("data", "image_size", IntegerKind{1, 4096}, "Height and width of the crop that a model is given.",
          MEMBER(data.image_size), later_only({"folder"})),
      key("data", "resize", IntegerKind{0, 8192},
          "The shorter side of a picture before the crop, at least image_size. 0: image_size.", MEMBER(data.resize),
          later_only({"folder"})),
      key("data", "decode_threads", IntegerKind{1, 256}, "Threads of a worker that decode a batch's pictures.",
          MEMBER(data.decode_threads), Traits{.may_change = true, .of_types = {"folder"}}),
      key("data", "classes", IntegerKind{2, 1'000'000}, "Number of different labels, which count from 0.", MEMBER(data.classes),
          only({"idx", "csv", "arrays", "folder", "synthetic"})),
      key("data", "mean", NumberKind{.min = -std::numeric_limits<double>::infinity(), .nullable = true},
          "Mean that is taken from pixels scaled to 0..1. Given together with std.", MEMBER(data.mean),
          Traits{.of_types = {"idx", "cifar10", "cifar100", "folder"},
                 .default_text = "of the training images; of a folder, ImageNet's of each colour"}),
      key("data", "std", NumberKind{.min = kSmallestStd, .nullable = true}, "Standard deviation that pixels are divided by.",
          MEMBER(data.std),
          Traits{.of_types = {"idx", "cifar10", "cifar100", "folder"},
                 .default_text = "of the training images; of a folder, ImageNet's of each colour"}),
      key("data", "train_samples", IntegerKind{0, kMany},
          "Use only the first so many training samples. 0: all; of synthetic data 10,000.", MEMBER(data.train_samples)),
      key("data", "test_samples", IntegerKind{0, kMany},
          "Use only the first so many test samples. 0: all; of synthetic data 10,000.", MEMBER(data.test_samples)),
      key("data", "prefetch", IntegerKind{1, 1024}, "Batches prepared ahead of the training loop.", MEMBER(data.prefetch),
          kMayChange),
      key("data", "loader_threads", IntegerKind{1, 256},
          "Threads of a worker that prepare batches, one each, in order. 1: small batches are made by the training loop "
          "itself.",
          MEMBER(data.loader_threads), kMayChange),
      key("data", "ledger", BoolKind{}, "Write ledger/rank-XXXXX.jsonl: which samples were used in which step.",
          MEMBER(data.ledger), kMayChange),

      key("data.augment", "crop_padding", IntegerKind{0, 1024},
          "Pixels of zero padding on each side before a random crop back to size. 0: no crop.",
          MEMBER(data.augment.crop_padding)),
      key("data.augment", "flip", BoolKind{}, "Mirror left and right with probability 1/2.", MEMBER(data.augment.flip)),
      key("data.augment", "random_crop", BoolKind{},
          "Crop anywhere, and not in the middle. Only for data.type folder, as the next.", MEMBER(data.augment.random_crop),
          kAddedLater),
      key("data.augment", "erase", NumberKind{.max = 1},
          "Probability that a rectangle of the picture is set to 0 after normalisation, as torchvision's RandomErasing does.",
          MEMBER(data.augment.erase), kAddedLater),
      key("data.augment", "mixup", NumberKind{.max = 1000},
          "Mix each picture and its label with the one before it in the global batch. How much stays its own is drawn from the "
          "Beta distribution with this number as both parameters. 0: not.",
          MEMBER(data.augment.mixup), kAddedLater),

      key("data.validation", "fraction", NumberKind{.max = 1, .below_max = true},
          "Share of the training samples that is held out. 0: not by a share.", MEMBER(data.validation.fraction), kAddedLater),
      key("data.validation", "samples", IntegerKind{0, kMany}, "So many training samples are held out. 0: not by their number.",
          MEMBER(data.validation.samples), kAddedLater),

      key("optimizer", "type", NameKind{{"sgd", "adamw", "adam", "lion"}}, "With PyTorch's formulas; lion with its paper's.",
          MEMBER(optimizer.type)),
      key("optimizer", "lr", NumberKind{.above_min = true}, "Learning rate, before the schedule's factor.",
          MEMBER(optimizer.lr)),
      key("optimizer", "lr_batch_rule", NameKind{{"none", "linear", "square_root"}},
          "What lr is multiplied by. linear: batch_size / lr_base_batch. square_root: its square root.",
          MEMBER(optimizer.lr_batch_rule), kAddedLater),
      key("optimizer", "lr_base_batch", IntegerKind{0, kMany}, "The batch_size for which lr is meant; a rule needs one.",
          MEMBER(optimizer.lr_base_batch), kAddedLater),
      key("optimizer", "momentum", NumberKind{}, "Momentum factor.", MEMBER(optimizer.momentum), only({"sgd"})),
      key("optimizer", "nesterov", BoolKind{}, "Nesterov momentum; needs momentum above 0.", MEMBER(optimizer.nesterov),
          only({"sgd"})),
      key("optimizer", "weight_decay", NumberKind{},
          "sgd, adam: L2 penalty added to the gradient. adamw, lion: decoupled decay.", MEMBER(optimizer.weight_decay),
          Traits{.default_text = "0.01 for adamw, 0 for the others"}),
      key("optimizer", "betas", NumberPairKind{},
          "Decay of the running means of gradient and squared gradient; lion: share of the mean in the update, decay of the "
          "mean.",
          MEMBER(optimizer.betas),
          Traits{.of_types = {"adamw", "adam", "lion"}, .default_text = "[0.9,0.999], [0.9,0.99] for lion"}),
      key("optimizer", "eps", NumberKind{}, "Added to the denominator.", MEMBER(optimizer.eps), only({"adamw", "adam"})),
      key("optimizer", "groups", ParameterGroupsKind{},
          "Parameters with a learning rate or a weight decay of their own; the first whose pattern matches a name has it.",
          MEMBER(optimizer.groups), kAddedLater),

      key("optimizer.ema", "decay", NumberKind{.max = 1, .below_max = true},
          "Share of the average that each step keeps, such as 0.999. 0: no average.", MEMBER(optimizer.ema.decay), kAddedLater),

      key("schedule", "type",
          NameKind{{"constant", "step", "cosine", "linear", "polynomial", "one_cycle", "warmup_stable_decay", "plateau"}},
          "How the learning rate's factor changes after the warm-up.", MEMBER(schedule.type)),
      key("schedule", "warmup_steps", IntegerKind{0, kMany}, "Steps over which the factor rises linearly to 1.",
          MEMBER(schedule.warmup_steps)),
      key("schedule", "step_epochs", IntegerKind{1, kMany}, "Multiply the factor by gamma every so many epochs.",
          MEMBER(schedule.step_epochs), only({"step"})),
      key("schedule", "gamma", NumberKind{.above_min = true}, "What the factor is multiplied by.", MEMBER(schedule.gamma),
          only({"step"})),
      key("schedule", "final_factor", NumberKind{}, "Factor at the last step of the run.", MEMBER(schedule.final_factor),
          only({"cosine", "linear", "polynomial", "warmup_stable_decay"})),
      key("schedule", "power", NumberKind{.above_min = true}, "Exponent of what is left of the way to the last step.",
          MEMBER(schedule.power), only({"polynomial"})),
      key("schedule", "pct_start", NumberKind{.max = 1},
          "Share of the run in which the factor rises to 1; the momentum stays as it is, unlike PyTorch's default.",
          MEMBER(schedule.pct_start), only({"one_cycle"})),
      key("schedule", "div_factor", NumberKind{.above_min = true}, "The factor begins at 1 divided by this.",
          MEMBER(schedule.div_factor), only({"one_cycle"})),
      key("schedule", "final_div_factor", NumberKind{.above_min = true},
          "The factor ends at what it began with divided by this.", MEMBER(schedule.final_div_factor), only({"one_cycle"})),
      key("schedule", "decay_steps", IntegerKind{0, kMany},
          "Last steps of the run, in which the factor falls to final_factor. 0: a tenth of the run.",
          MEMBER(schedule.decay_steps), only({"warmup_stable_decay"})),
      key("schedule", "metric", TextKind{}, "The figure of the evaluation that it goes by.", MEMBER(schedule.metric),
          only({"plateau"})),
      key("schedule", "mode", NameKind{{"auto", "min", "max"}},
          "Whether that figure gets better by falling or by rising. auto: by rising for a name that ends in \"accuracy\", by "
          "falling for one that ends in \"loss\".",
          MEMBER(schedule.mode), only({"plateau"})),
      key("schedule", "factor", NumberKind{.max = 1, .above_min = true, .below_max = true},
          "What the learning rate is multiplied by.", MEMBER(schedule.factor), only({"plateau"})),
      key("schedule", "patience", IntegerKind{0, kMany}, "Evaluations without an improvement that are let pass.",
          MEMBER(schedule.patience), only({"plateau"})),
      key("schedule", "threshold", NumberKind{}, "An improvement is more than that.", MEMBER(schedule.threshold),
          only({"plateau"})),
      key("schedule", "threshold_mode", NameKind{{"rel", "abs"}}, "rel: the threshold is a share of the best figure.",
          MEMBER(schedule.threshold_mode), only({"plateau"})),
      key("schedule", "cooldown", IntegerKind{0, kMany}, "Evaluations after a change that do not count.",
          MEMBER(schedule.cooldown), only({"plateau"})),
      key("schedule", "min_lr", NumberKind{}, "The learning rate falls to this at most.", MEMBER(schedule.min_lr),
          only({"plateau"})),
      key("schedule", "eps", NumberKind{}, "A change of the learning rate that is not larger is not made.",
          MEMBER(schedule.eps), only({"plateau"})),

      key("early_stopping", "patience", IntegerKind{0, kMany},
          "End the run after so many evaluations in a row without an improvement. 0: at its last step.",
          MEMBER(early_stopping.patience), kMayChangeForAll),
      key("early_stopping", "metric", TextKind{}, "The figure of the evaluation that it goes by.",
          MEMBER(early_stopping.metric), kMayChangeForAll),
      key("early_stopping", "mode", NameKind{{"auto", "min", "max"}},
          "Whether that figure gets better by falling or by rising; auto as for the schedule.", MEMBER(early_stopping.mode),
          kMayChangeForAll),
      key("early_stopping", "min_delta", NumberKind{}, "An improvement is more than that.", MEMBER(early_stopping.min_delta),
          kMayChangeForAll),

      key("checkpoint", "every", NameKind{{"given", "auto"}},
          "given: by every_steps and every_seconds. auto: as often as it pays, from the measured time of a save and the run's "
          "failures.",
          MEMBER(checkpoint.every), kMayChange),
      key("checkpoint", "every_steps", IntegerKind{0, kMany}, "Save every so many optimizer steps. 0: not by steps.",
          MEMBER(checkpoint.every_steps), kMayChangeForAll),
      key("checkpoint", "every_seconds", NumberKind{}, "Save when so many seconds have passed. 0: not by time.",
          MEMBER(checkpoint.every_seconds), kMayChange),
      key("checkpoint", "keep", IntegerKind{1, kMany},
          "Checkpoints that are kept, newest first. One is always written at the end.", MEMBER(checkpoint.keep), kMayChange),
      key("checkpoint", "keep_every_steps", IntegerKind{0, kMany},
          "Keep the first checkpoint at or past each multiple of so many steps for ever. 0: none.",
          MEMBER(checkpoint.keep_every_steps), kMayChange),
      key("checkpoint", "keep_best", IntegerKind{0, kMany},
          "Keep so many of the best checkpoints as well; then one is saved after each evaluation. 0: none.",
          MEMBER(checkpoint.keep_best), kMayChangeForAll),
      key("checkpoint", "best_by", TextKind{}, "The figure of the evaluation that keep_best goes by.",
          MEMBER(checkpoint.best_by), kMayChange),
      key("checkpoint", "best_is", NameKind{{"auto", "highest", "lowest"}},
          "Which of that figure is best. auto: highest for a name that ends in \"accuracy\", lowest for one that ends in "
          "\"loss\".",
          MEMBER(checkpoint.best_is), kMayChange),
      key("checkpoint", "background", BoolKind{},
          "Write while training continues, from a copy in host memory. false: training waits, without the copy.",
          MEMBER(checkpoint.background), kMayChange),
      key("checkpoint", "wait_for_room_s", NumberKind{},
          "Seconds for which a run's last checkpoint waits for room on a full disk before its steps are given up. 0: not at "
          "all.",
          MEMBER(checkpoint.wait_for_room_s), kMayChange),
      key("checkpoint", "local_dir", TextKind{.may_be_empty = true, .path = true},
          "Absolute path of a folder on each node's own disk: one worker of each node keeps a copy of the newest two "
          "checkpoints there. Empty: none.",
          MEMBER(checkpoint.local_dir), kMayChange),

      key("ddp", "bucket_mb", NumberKind{.max = 65536, .above_min = true}, "Size of a bucket of gradients, in MiB.",
          MEMBER(ddp.bucket_mb)),
      key("ddp", "first_bucket_mb", NumberKind{.max = 65536, .above_min = true},
          "Size of the first bucket, in MiB: small, so that communication begins early.", MEMBER(ddp.first_bucket_mb)),
      key("ddp", "find_unused_parameters", BoolKind{}, "Look for parameters without a gradient in each step.",
          MEMBER(ddp.find_unused_parameters)),
      key("ddp", "static_graph", BoolKind{}, "The same parameters are used in every step.", MEMBER(ddp.static_graph)),
      key("ddp", "gradient_as_bucket_view", BoolKind{}, "Gradients live in the buckets, which saves a copy.",
          MEMBER(ddp.gradient_as_bucket_view)),
      key("ddp", "compress", NameKind{{"none", "fp16", "bf16"}},
          "Sum gradients over the workers with fewer bits, as PyTorch's hooks fp16_compress_hook and bf16_compress_hook do.",
          MEMBER(ddp.compress), kAddedLater),
      key("ddp", "timeout_s", NumberKind{.max = 1e7, .above_min = true}, "Seconds that a collective may take.",
          MEMBER(ddp.timeout_s), kMayChange),
      key("ddp", "compare_every_steps", IntegerKind{0, kMany},
          "Compare the training states of all workers every so many optimizer steps, and before each save. 0: only when a lost "
          "worker is replaced.",
          MEMBER(ddp.compare_every_steps), kMayChangeForAll),

      key("grad_scaler", "init_scale", NumberKind{.max = 1e30, .above_min = true}, "What the loss is multiplied by at first.",
          MEMBER(grad_scaler.init_scale), kAddedLater),
      key("grad_scaler", "growth_factor", NumberKind{.min = 1, .above_min = true},
          "What the scale is multiplied by after growth_interval steps in a row with finite gradients.",
          MEMBER(grad_scaler.growth_factor), kAddedLater),
      key("grad_scaler", "backoff_factor", NumberKind{.max = 1, .above_min = true, .below_max = true},
          "What the scale is multiplied by when a gradient is not finite; the step then changes no weight.",
          MEMBER(grad_scaler.backoff_factor), kAddedLater),
      key("grad_scaler", "growth_interval", IntegerKind{1, kMany}, "Steps.", MEMBER(grad_scaler.growth_interval), kAddedLater),

      key("log", "every_steps", IntegerKind{1, kMany}, "Write a record to metrics.jsonl every so many optimizer steps.",
          MEMBER(log.every_steps), kMayChangeForAll),
      key("log", "tensorboard", BoolKind{}, "Write TensorBoard event files as well.", MEMBER(log.tensorboard), kMayChange),
      key("log", "trace_step", IntegerKind{0, kMany},
          "Trace steps from this one on with PyTorch's profiler: traces/ in the run directory, for ui.perfetto.dev. 0: none.",
          MEMBER(log.trace_step), kMayChange),
      key("log", "trace_steps", IntegerKind{1, 1000}, "How many steps are traced.", MEMBER(log.trace_steps), kMayChange),
      key("log", "trace_ranks", IntegerListKind{.min = 0}, "Which ranks are traced.", MEMBER(log.trace_ranks), kMayChange),
  };
  return keys;
}
#undef MEMBER

}  // namespace

std::string Key::pointer() const {
  std::string out = "/" + dotted();
  std::replace(out.begin(), out.end(), '.', '/');
  return out;
}

const std::vector<Key>& config_keys() {
  static const std::vector<Key> keys = make_keys();
  return keys;
}

const std::vector<Section>& config_sections() {
  static const std::vector<Section> sections{
      {"", "What to train, for how long, and how."},
      {"model", "The network."},
      {"model.lora", "Low-rank updates of linear layers, which are trained instead of the model's own weights."},
      {"data", "The data set and how it is prepared."},
      {"data.augment", "Random changes of training images, keyed by seed, epoch and sample."},
      {"data.validation",
       "Training samples, chosen by the seed, that no step uses. Evaluations measure them beside the test set: the figures are "
       "called validation_loss and so on."},
      {"optimizer", "How weights follow gradients."},
      {"optimizer.ema", "An exponential moving average of the weights, which evaluations and exports use."},
      {"schedule", "The learning rate's factor over the run."},
      {"early_stopping", "When to end before the last step."},
      {"checkpoint", "When to save, how, and what to keep."},
      {"ddp", "How gradients are averaged between workers."},
      {"grad_scaler", "How precision fp16 scales the loss: torch.amp.GradScaler's names and defaults."},
      {"log", "What is written while training."},
  };
  return sections;
}

const Key* find_key(std::string_view dotted) {
  for (const Key& key : config_keys()) {
    if (key.dotted() == dotted) return &key;
  }
  return nullptr;
}

bool applies(const Key& key, const TrainConfig& config) {
  if (key.of_types.empty()) return true;
  const Json type = find_key(key.section + ".type")->get(config);
  return std::find(key.of_types.begin(), key.of_types.end(), type.get_ref<const std::string&>()) != key.of_types.end();
}

}  // namespace ddprun
