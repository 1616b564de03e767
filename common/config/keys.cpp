// The entries of the table of keys. The descriptions also appear in the schema and in the reference for users. The code that
// reads and prints configs contains no names of keys, except in rules between two keys (rules.cpp).
//
// Note [Why this file is long] The file is one table with long rows. ddprun prints the keys in the order of this table.
#include "common/config/keys.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "common/config/parameter_groups.hpp"

namespace ddprun {
namespace {

using Json = nlohmann::json;

// The lower limit of data.std. Pixels are within 0..1. If they are divided by a number below this limit, training cannot
// converge.
constexpr double kSmallestStd = 1e-6;
// upper limit for config values that are counts, so that a product of two counts cannot overflow
constexpr std::int64_t kMany = 1'000'000'000;

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
template <class T>
struct Reading<std::optional<T>> {
  static std::optional<T> from(const Json& json) { return json.is_null() ? std::nullopt : std::optional<T>(json.get<T>()); }
};

// Makes an entry of the table. `path` is "section.name", or the name of a key at the top level. `access` takes a TrainConfig&
// or a const TrainConfig&, and returns the member for the key.
template <class Access>
Key key(std::string_view path, Access access, Kind kind, std::string doc, KeyTraits traits = {}) {
  using T = std::remove_cvref_t<decltype(access(std::declval<TrainConfig&>()))>;
  const std::size_t dot = path.rfind('.');
  const bool at_top = dot == std::string_view::npos;
  Key out{std::move(traits), std::string(at_top ? "" : path.substr(0, dot)), std::string(at_top ? path : path.substr(dot + 1)),
          std::move(kind), std::move(doc)};
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

// Makes the entry of a key that has the same name as its member in TrainConfig. The macro must not put the argument in
// parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define KEY(path, ...) \
  key(                 \
      #path, [](auto& c) -> auto& { return c.path; }, __VA_ARGS__)
// NOLINTEND(bugprone-macro-parentheses)

const KeyTraits kMayChange{.may_change = true};
const KeyTraits kMayChangeForAll{.may_change = true, .job_wide = true};
const KeyTraits kAddedLater{.added_later = true};

KeyTraits only(std::vector<std::string_view> types) {
  return KeyTraits{.section_types = std::move(types)};
}

KeyTraits later_only(std::vector<std::string_view> types) {
  return KeyTraits{.added_later = true, .section_types = std::move(types)};
}

std::vector<Key> make_keys() {
  std::vector<Key> keys{
      KEY(name, TextKind{.name_only = true},
          "Name of the run; its directory is runs/<name>. Letters, digits, '.', '_' and '-', starting with a letter, digit or "
          "'_'."),
      KEY(worker, TextKind{.may_be_empty = true, .path = true},
          "Path of a custom worker program, relative to the config file. --worker overrides it. Empty: ddptrain.", kMayChange),
      KEY(epochs, IntegerKind{1, kMany}, "Number of passes over the training set.", kMayChangeForAll),
      KEY(min_steps, IntegerKind{0, kMany}, "Minimum number of optimizer steps: small data sets get more epochs. 0: off.",
          kAddedLater),
      KEY(max_steps, IntegerKind{0, kMany * 1000}, "Maximum number of optimizer steps of the run. 0: no limit.",
          kMayChangeForAll),
      KEY(batch_size, IntegerKind{1, kMany}, "Samples per optimizer step, summed over all workers."),
      KEY(micro_batch_size, IntegerKind{0, kMany},
          "Maximum number of samples per forward pass of a worker. A larger share of the batch is split, and its gradients are "
          "accumulated. 0: no split.",
          kMayChange),
      KEY(eval_batch_size, IntegerKind{1, kMany},
          "Samples per forward pass of a worker in an evaluation. Affects memory use and speed, but not the result.",
          kMayChange),
      KEY(eval_every_epochs, IntegerKind{0, kMany}, "Evaluate on the test set every N epochs. 0: only at the end.",
          kMayChangeForAll),
      KEY(eval_every_steps, IntegerKind{0, kMany}, "Also evaluate every N optimizer steps. 0: only by epochs.",
          kMayChangeForAll),
      KEY(label_smoothing, NumberKind{.max = 1, .below_max = true},
          "Fraction of the target probability that is spread over all classes."),
      KEY(clip_grad_norm, NumberKind{},
          "Maximum 2-norm of all gradients together. If their norm is larger, they are scaled down to this value. 0: no "
          "clipping."),
      KEY(clip_grad_value, NumberKind{},
          "Maximum absolute value of a gradient element; larger elements are clamped, before clip_grad_norm. 0: no clipping.",
          kAddedLater),
      KEY(not_finite, NameKind{{"stop", "skip"}},
          "Action after a step with a NaN or infinite value on any worker. stop: the run ends if the loss is not finite. skip: "
          "if the loss or a gradient is not finite, the step changes nothing, and training continues.",
          kMayChangeForAll),
      KEY(max_skipped_steps, IntegerKind{1, kMany},
          "Maximum number of consecutive skipped steps with \"not_finite\": \"skip\". One more ends the run.",
          kMayChangeForAll),
      KEY(seed, IntegerKind{}, "Seed of initial weights, data order, augmentation and dropout."),
      KEY(device, NameKind{{"auto", "cpu", "cuda"}}, "Device to train on. auto: GPUs if the machine has any.", kMayChange),
      KEY(precision, NameKind{{"fp32", "tf32", "bf16", "fp16"}},
          "Number format of matrix products and convolutions; weights, optimizer moments and sums stay float32. tf32: lower "
          "precision on a GPU's tensor cores, no effect on a CPU. bf16, fp16: PyTorch's autocast; fp16 also uses its "
          "GradScaler.",
          kMayChange),
      KEY(channels_last, BoolKind{},
          "Store images and convolution weights with channels last in memory, the fastest layout for convolutions on GPUs. "
          "Affects the speed, and changes the result only by rounding.",
          kMayChangeForAll),
      KEY(deterministic, BoolKind{},
          "Use only operators that compute the same bits each time, as torch.use_deterministic_algorithms does. If an operator "
          "has no such version, the run ends with an error that names it.",
          kMayChange),

      KEY(model.type,
          NameKind{{"mlp", "cnn", "resnet18", "resnet34", "resnet50", "resnet20", "resnet56", "exported", "gpt", "llama", "vit",
                    "auto"}},
          "mlp: fully connected layers. cnn: two convolutions and two fully connected layers. resnet18, 34, 50: torchvision's "
          "networks, for small images. resnet20, 56: the ResNet paper's networks for CIFAR. exported: your own PyTorch model, "
          "exported with python3 -m ddprun.export. gpt: GPT-2. llama: Llama, Mistral, Qwen2 and Qwen3. vit: the vision "
          "transformer, with timm's parameter names. auto: the model that config.json of the Hugging Face folder in init "
          "describes; all keys of the model come from that file."),
      KEY(model.hidden, IntegerListKind{}, "Widths of the hidden layers.", only({"mlp"})),
      KEY(model.dropout, NumberKind{.max = 1, .below_max = true},
          "Dropout probability. mlp, cnn: before the last layer. gpt: in the same places as GPT-2. vit: after the position "
          "embedding, in attention and after each layer of a block.",
          only({"mlp", "cnn", "gpt", "vit"})),
      KEY(model.n_layer, IntegerKind{1, 10'000}, "Number of blocks.", only({"gpt", "llama", "vit"})),
      KEY(model.n_head, IntegerKind{1, 100'000}, "Attention heads per block.", only({"gpt", "llama", "vit"})),
      KEY(model.n_embd, IntegerKind{1, 1'000'000},
          "Width of the embeddings and of each block; must be a multiple of n_head unless "
          "head_dim is set.",
          only({"gpt", "llama", "vit"})),
      KEY(model.patch_size, IntegerKind{1, 4096},
          "Side length of the square patches into which an image is split; must divide the image's height and width.",
          later_only({"vit"})),
      KEY(model.n_kv_head, IntegerKind{0, 100'000},
          "Number of key and value heads; each is shared by the same number of query heads. 0: as many as n_head.",
          later_only({"llama"})),
      KEY(model.n_inner, IntegerKind{0, 10'000'000},
          "Hidden width of a block's feed-forward part. 0: 8/3 of n_embd, rounded up to a multiple of 256.",
          later_only({"llama"})),
      KEY(model.head_dim, IntegerKind{0, 1'000'000}, "Width of a head; must be even. 0: n_embd divided by n_head.",
          later_only({"llama"})),
      KEY(model.rope_theta, NumberKind{.above_min = true}, "Base of the wavelengths of the rotary position embedding.",
          later_only({"llama"})),
      KEY(model.rope_scaling, NameKind{{"none", "linear", "llama3"}},
          "Scaling of rotary positions. linear: all frequencies are divided by rope_factor. llama3: as in Llama 3.1, only low "
          "frequencies are divided.",
          later_only({"llama"})),
      KEY(model.rope_factor, NumberKind{.above_min = true}, "Divisor of the frequencies; for rope_scaling linear and llama3.",
          later_only({"llama"})),
      KEY(model.rope_low_freq_factor, NumberKind{.above_min = true},
          "rope_scaling llama3: wavelengths above rope_original_positions divided by this are scaled completely.",
          later_only({"llama"})),
      KEY(model.rope_high_freq_factor, NumberKind{.above_min = true},
          "rope_scaling llama3: wavelengths below rope_original_positions divided by this are not scaled.",
          later_only({"llama"})),
      KEY(model.rope_original_positions, IntegerKind{1, kMany},
          "rope_scaling llama3: number of positions with which the model was trained before the scaling.",
          later_only({"llama"})),
      KEY(model.rms_norm_eps, NumberKind{}, "RMSNorm: added to the mean square before the square root, to avoid division by 0.",
          later_only({"llama"})),
      KEY(model.tie_word_embeddings, BoolKind{}, "Use the weight of the token embedding also as the weight of the last layer.",
          later_only({"llama"})),
      KEY(model.attention_bias, NameKind{{"none", "qkv", "all"}},
          "Linear layers of attention with a bias. qkv: queries, keys and values, as in Qwen2. all: also the output.",
          later_only({"llama"})),
      KEY(model.qk_norm, BoolKind{}, "Apply RMSNorm to the queries and keys of each head, as Qwen3 does.",
          later_only({"llama"})),
      KEY(model.crop_positions, BoolKind{},
          "If the initial weights have more learned positions than data.block_size, use only the first ones.",
          later_only({"gpt"})),
      KEY(model.activation_checkpointing, BoolKind{},
          "Keep only the input of each block, and recompute the block in the backward pass. Takes less memory and more time; "
          "the result is bit-identical.",
          KeyTraits{.may_change = true, .section_types = {"gpt", "llama", "vit"}}),
      KEY(model.sync_batch_norm, BoolKind{},
          "Compute the mean and variance of batch norm over the samples of all workers, as torch.nn.SyncBatchNorm does, "
          "instead of per worker.",
          later_only({"resnet18", "resnet34", "resnet50", "resnet20", "resnet56"})),
      KEY(model.init, TextKind{.may_be_empty = true, .path = true},
          "Initial weights, relative to the config file: a safetensors file, the folder of a Hugging Face model, or the folder "
          "of a checkpoint. Empty: weights are drawn from the seed."),
      KEY(model.path, TextKind{.may_be_empty = true, .path = true},
          "Folder of the exported model, relative to the config file; required for this type. A resumed run accepts another "
          "location of the folder, but not other content.",
          KeyTraits{.may_change = true, .section_types = {"exported"}}),
      KEY(model.freeze, TextListKind{},
          "Patterns of parameter names, such as \"layer1.*\": matching parameters are saved but not trained. * matches any "
          "characters.",
          kAddedLater),

      KEY(model.lora.rank, IntegerKind{0, 1'000'000},
          "Rank of each low-rank update: the inner dimension of its two matrices. 0: no updates, all weights are trained.",
          kAddedLater),
      KEY(model.lora.alpha, NumberKind{.above_min = true}, "Each low-rank update is multiplied by alpha / rank.", kAddedLater),
      KEY(model.lora.modules, TextListKind{},
          "Patterns of linear layer names, such as \"*.c_attn\": matching layers get a low-rank update. * matches any "
          "characters.",
          kAddedLater),

      KEY(data.type,
          NameKind{{"idx", "cifar10", "cifar100", "tensors", "tokens", "csv", "arrays", "folder", "synthetic", "table"}},
          "idx: files in MNIST's IDX format, plain or .gz. cifar10, cifar100: the binary version of these data sets. tensors: "
          "safetensors files with the tensors that an exported model takes. tokens: text or token files, for gpt and llama. "
          "csv: lines of numbers. arrays: .npy or safetensors files with numbers. folder: JPEG and PNG files, one folder per "
          "class. synthetic: generated, without files. table: a CSV file as it is, with text, dates and missing values."),
      KEY(data.dir, TextKind{.path = true}, "Folder with the data files, relative to the config file.",
          KeyTraits{.required = true,
                    .may_change = true,
                    .section_types = {"idx", "cifar10", "cifar100", "tensors", "tokens", "csv", "arrays", "folder", "table"}}),
      KEY(data.shape, IntegerListKind{}, "Sizes of the model input per sample: [channels, height, width] for an image.",
          later_only({"synthetic"})),
      KEY(data.train_images, TextKind{}, "File with training images; if it does not exist, the same name with .gz is read.",
          only({"idx"})),
      KEY(data.train_labels, TextKind{}, "File with training labels.", only({"idx"})),
      KEY(data.test_images, TextKind{}, "File with test images.", only({"idx"})),
      KEY(data.test_labels, TextKind{}, "File with test labels.", only({"idx"})),
      KEY(data.train, TextKind{},
          "safetensors file with training samples; the first dimension of each tensor is the sample index.", only({"tensors"})),
      KEY(data.test, TextKind{}, "safetensors file with test samples.", only({"tensors"})),
      KEY(data.train_tokens, TextKind{},
          "File to train on. *.bin: tokens as written by nanoGPT or llm.c. Any other file is text; each byte is a token unless "
          "a tokenizer is set.",
          only({"tokens"})),
      KEY(data.test_tokens, TextKind{}, "File to evaluate on.", only({"tokens"})),
      KEY(data.tokenizer, TextKind{.may_be_empty = true, .path = true},
          "Byte-level BPE tokenizer for text, relative to the config file: a tokenizer.json, or a folder with tokenizer.json "
          "or with vocab.json and merges.txt. Empty: each byte is a token.",
          KeyTraits{.may_change = true, .section_types = {"tokens"}}),
      KEY(data.token_type, NameKind{{"uint16", "uint32"}},
          "Integer type of the tokens in a *.bin file without llm.c's header. A header overrides it.", later_only({"tokens"})),
      KEY(data.block_size, IntegerKind{1, 10'000'000},
          "Tokens per sample. With data.type synthetic, this key and vocab_size are only for model types gpt and llama.",
          only({"tokens", "synthetic"})),
      KEY(data.vocab_size, IntegerKind{1, 100'000'000},
          "Number of different tokens, numbered from 0. Text without a tokenizer needs 256.", only({"tokens", "synthetic"})),
      KEY(data.end_of_document, IntegerKind{.max = 100'000'000, .nullable = true},
          "Last token of each document. If set, a sample may hold several documents: each token attends to its own document "
          "only, positions count from the document's start, and the token after this one is not predicted.",
          KeyTraits{.added_later = true, .section_types = {"tokens"}, .default_text = "documents are not separated"}),
      KEY(data.train_table, TextKind{}, "CSV file with training samples. The first line names the columns.",
          later_only({"csv", "table"})),
      KEY(data.test_table, TextKind{.may_be_empty = true},
          "CSV file with test samples, with the same columns. For type table the default is empty: test_fraction of the rows "
          "of "
          "train_table are the test samples.",
          later_only({"csv", "table"})),
      KEY(data.test_fraction, NumberKind{.max = 1, .above_min = true, .below_max = true},
          "Without test_table: fraction of the rows of train_table that are test samples. The seed and the number of a row "
          "decide.",
          later_only({"table"})),
      KEY(data.as_number, TextListKind{.allows_empty = true},
          "Columns to read as numbers; a value that is not a number is a missing value.", later_only({"table"})),
      KEY(data.as_one_hot, TextListKind{.allows_empty = true},
          "Columns to read as categories, with one input for each category, such as numbers that are codes.",
          later_only({"table"})),
      KEY(data.as_embedding, TextListKind{.allows_empty = true},
          "Columns to read as categories, with a trained vector for each category.", later_only({"table"})),
      KEY(data.missing_values, TextListKind{},
          "Texts that mean a missing value, such as \"-999\". Always missing: empty, NA, N/A, NaN, null and ?.",
          later_only({"table"})),
      KEY(data.train_inputs, TextKind{},
          "Model input of the training samples: FILE.npy or FILE.safetensors:NAME. The first dimension is the sample index.",
          later_only({"arrays"})),
      KEY(data.train_targets, TextKind{}, "Targets of the training samples.", later_only({"arrays"})),
      KEY(data.test_inputs, TextKind{}, "Model input of the test samples.", later_only({"arrays"})),
      KEY(data.test_targets, TextKind{}, "Targets of the test samples.", later_only({"arrays"})),
      KEY(data.predict, NameKind{{"class", "number"}},
          "class: predict one of several classes; the loss is the cross entropy. number: predict numbers; the loss is the mean "
          "squared error.",
          later_only({"csv", "arrays", "synthetic", "table"})),
      KEY(data.target, TextKind{}, "Column to predict.", later_only({"csv", "table"})),
      KEY(data.class_names, TextListKind{},
          "Values of the target column, one per class, without duplicates; their count is the number of classes. Empty: the "
          "target column contains class numbers from 0 to classes - 1; for type table, its values are the classes.",
          later_only({"csv", "table"})),
      KEY(data.leave_out, TextListKind{.allows_empty = true},
          "Columns that are not used as inputs; \"\" is a column without a name.", later_only({"csv", "table"})),
      KEY(data.standardize, BoolKind{},
          "Standardize each input column: subtract its mean and divide by its standard deviation, both over the samples used "
          "for training.",
          later_only({"csv"})),
      KEY(data.train_folder, TextKind{}, "Folder with training images. Its subfolders are the classes, sorted by name.",
          later_only({"folder"})),
      KEY(data.test_folder, TextKind{}, "Folder with test images and the same subfolders.", later_only({"folder"})),
      KEY(data.image_size, IntegerKind{1, 4096}, "Height and width of the crop that the model receives.",
          later_only({"folder"})),
      KEY(data.resize, IntegerKind{0, 8192},
          "Length to which the shorter side of an image is resized before the crop, at least image_size. 0: image_size.",
          later_only({"folder"})),
      KEY(data.decode_threads, IntegerKind{1, 256}, "Threads per worker that decode the images of a batch.",
          KeyTraits{.may_change = true, .section_types = {"folder"}}),
      KEY(data.classes, IntegerKind{2, 1'000'000}, "Number of different labels, numbered from 0.",
          only({"idx", "csv", "arrays", "folder", "synthetic"})),
      KEY(data.mean, NumberKind{.min = -std::numeric_limits<double>::infinity(), .nullable = true},
          "Mean subtracted from pixels scaled to 0..1. Must be set together with std.",
          KeyTraits{.section_types = {"idx", "cifar10", "cifar100", "folder"},
                    .default_text = "computed from the training images; for type folder, ImageNet's values per color channel"}),
      KEY(data.std, NumberKind{.min = kSmallestStd, .nullable = true}, "Standard deviation by which pixels are divided.",
          KeyTraits{.section_types = {"idx", "cifar10", "cifar100", "folder"},
                    .default_text = "computed from the training images; for type folder, ImageNet's values per color channel"}),
      KEY(data.train_samples, IntegerKind{0, kMany},
          "Use only the first N training samples. 0: all; 10,000 for synthetic data."),
      KEY(data.test_samples, IntegerKind{0, kMany}, "Use only the first N test samples. 0: all; 10,000 for synthetic data."),
      KEY(data.prefetch, IntegerKind{1, 1024}, "Number of batches to prepare ahead of the training loop.", kMayChange),
      KEY(data.loader_threads, IntegerKind{1, 256},
          "Number of threads per worker that prepare batches. Each thread prepares whole batches; their order does not change. "
          "1: small batches are prepared by the thread that trains.",
          kMayChange),
      KEY(data.ledger, BoolKind{}, "Write the samples used in each step to ledger/rank-XXXXX.jsonl in the run directory.",
          kMayChange),

      KEY(data.augment.crop_padding, IntegerKind{0, 1024},
          "Pixels of zero padding on each side before a random crop back to the original size. 0: no crop."),
      KEY(data.augment.flip, BoolKind{}, "Flip horizontally with probability 1/2."),
      KEY(data.augment.random_crop, BoolKind{}, "Crop at a random position instead of the center. Only for data.type folder.",
          kAddedLater),
      KEY(data.augment.erase, NumberKind{.max = 1},
          "Probability that a rectangle of the image is set to 0 after normalisation, as torchvision's RandomErasing does. "
          "Only for data.type folder.",
          kAddedLater),
      KEY(data.augment.mixup, NumberKind{.max = 1000},
          "Mix each image and its label with the previous one in the global batch. The fraction that an image keeps is drawn "
          "from the Beta distribution with this number as both parameters. 0: off.",
          kAddedLater),

      KEY(data.validation.fraction, NumberKind{.max = 1, .below_max = true},
          "Fraction of the training samples to hold out. 0: none, unless samples is set.", kAddedLater),
      KEY(data.validation.samples, IntegerKind{0, kMany},
          "Number of training samples to hold out. 0: none, unless fraction is set.", kAddedLater),

      KEY(optimizer.type, NameKind{{"sgd", "adamw", "adam", "lion"}},
          "Update rule. sgd, adamw, adam: PyTorch's formulas. lion: the formula of its paper."),
      KEY(optimizer.lr, NumberKind{.above_min = true}, "Learning rate, before multiplication by the factor of the schedule."),
      KEY(optimizer.lr_batch_rule, NameKind{{"none", "linear", "square_root"}},
          "Factor applied to lr. none: 1. linear: batch_size / lr_base_batch. square_root: the square root of batch_size / "
          "lr_base_batch.",
          kAddedLater),
      KEY(optimizer.lr_base_batch, IntegerKind{0, kMany},
          "The batch_size for which lr was chosen; required if lr_batch_rule is linear or square_root.", kAddedLater),
      KEY(optimizer.momentum, NumberKind{}, "Momentum factor.", only({"sgd"})),
      KEY(optimizer.nesterov, BoolKind{}, "Nesterov momentum; requires momentum above 0.", only({"sgd"})),
      KEY(optimizer.weight_decay, NumberKind{},
          "Factor of the weight decay. sgd, adam: an L2 penalty that is added to the gradient. adamw, lion: decoupled from the "
          "gradient.",
          KeyTraits{.default_text = "0.01 for adamw, 0 for the others"}),
      KEY(optimizer.betas, NumberPairKind{},
          "Decay factors of the running means of the gradient and of the squared gradient. lion: weight of the running mean in "
          "the update, and its decay factor.",
          KeyTraits{.section_types = {"adamw", "adam", "lion"}, .default_text = "[0.9,0.999], [0.9,0.99] for lion"}),
      KEY(optimizer.eps, NumberKind{}, "Added to the denominator of the update, to avoid division by 0.",
          only({"adamw", "adam"})),
      KEY(optimizer.groups, ParameterGroupsKind{},
          "Parameters with a separate learning rate or weight decay; the first group whose pattern matches a name applies.",
          kAddedLater),

      KEY(optimizer.ema.decay, NumberKind{.max = 1, .below_max = true},
          "Weight of the previous average in each step, such as 0.999. 0: no average.", kAddedLater),

      KEY(schedule.type,
          NameKind{{"constant", "step", "cosine", "linear", "polynomial", "one_cycle", "warmup_stable_decay", "plateau"}},
          "How the learning rate factor changes after the warm-up."),
      KEY(schedule.warmup_steps, IntegerKind{0, kMany}, "Steps over which the factor rises linearly to 1."),
      KEY(schedule.step_epochs, IntegerKind{1, kMany}, "Multiply the factor by gamma every N epochs.", only({"step"})),
      KEY(schedule.gamma, NumberKind{.above_min = true},
          "The number by which the factor is multiplied every step_epochs epochs.", only({"step"})),
      KEY(schedule.final_factor, NumberKind{}, "Factor at the last step of the run.",
          only({"cosine", "linear", "polynomial", "warmup_stable_decay"})),
      KEY(schedule.power, NumberKind{.above_min = true},
          "Exponent p of the decay, which follows (fraction of remaining steps)^p.", only({"polynomial"})),
      KEY(schedule.pct_start, NumberKind{.max = 1},
          "Fraction of the run in which the factor rises to 1. The momentum stays constant, unlike PyTorch's default.",
          only({"one_cycle"})),
      KEY(schedule.div_factor, NumberKind{.above_min = true}, "Initial factor = 1 / this.", only({"one_cycle"})),
      KEY(schedule.final_div_factor, NumberKind{.above_min = true}, "Final factor = initial factor / this.",
          only({"one_cycle"})),
      KEY(schedule.decay_steps, IntegerKind{0, kMany},
          "Number of steps at the end of the run during which the factor falls to final_factor. 0: a tenth of the run.",
          only({"warmup_stable_decay"})),
      KEY(schedule.metric, TextKind{}, "Evaluation metric to watch.", only({"plateau"})),
      KEY(schedule.mode, NameKind{{"auto", "min", "max"}},
          "Whether lower (min) or higher (max) values of the metric are better. auto: max for a name that ends in "
          "\"accuracy\", min for one that ends in \"loss\".",
          only({"plateau"})),
      KEY(schedule.factor, NumberKind{.max = 1, .above_min = true, .below_max = true},
          "The number by which the learning rate is multiplied when the metric stops improving.", only({"plateau"})),
      KEY(schedule.patience, IntegerKind{0, kMany},
          "Maximum number of consecutive evaluations without an improvement. One more reduces the learning rate.",
          only({"plateau"})),
      KEY(schedule.threshold, NumberKind{}, "A change in the metric counts as an improvement only if it is larger than this.",
          only({"plateau"})),
      KEY(schedule.threshold_mode, NameKind{{"rel", "abs"}},
          "rel: the threshold is a fraction of the best value. abs: an absolute difference.", only({"plateau"})),
      KEY(schedule.cooldown, IntegerKind{0, kMany}, "Number of evaluations to ignore after a change in the learning rate.",
          only({"plateau"})),
      KEY(schedule.min_lr, NumberKind{}, "Lower bound of the learning rate.", only({"plateau"})),
      KEY(schedule.eps, NumberKind{},
          "Minimum reduction: if the learning rate would fall by this value or less, it does not change.", only({"plateau"})),

      KEY(early_stopping.patience, IntegerKind{0, kMany},
          "End the run after N consecutive evaluations without an improvement. 0: no early stopping.", kMayChangeForAll),
      KEY(early_stopping.metric, TextKind{}, "Evaluation metric to watch.", kMayChangeForAll),
      KEY(early_stopping.mode, NameKind{{"auto", "min", "max"}},
          "Whether lower (min) or higher (max) values of the metric are better. auto: max for a name that ends in "
          "\"accuracy\", min for one that ends in \"loss\".",
          kMayChangeForAll),
      KEY(early_stopping.min_delta, NumberKind{},
          "A change in the metric counts as an improvement only if it is larger than this.", kMayChangeForAll),

      KEY(checkpoint.every, NameKind{{"given", "auto"}},
          "given: save at the intervals every_steps and every_seconds. auto: choose the interval from the measured duration of "
          "a save and the failures so far.",
          kMayChange),
      KEY(checkpoint.every_steps, IntegerKind{0, kMany}, "Save every N optimizer steps. 0: no saves by step count.",
          kMayChangeForAll),
      KEY(checkpoint.every_seconds, NumberKind{}, "Save every N seconds. 0: no saves by time.", kMayChange),
      KEY(checkpoint.keep, IntegerKind{1, kMany},
          "Number of newest checkpoints to keep. The end of the run always writes a checkpoint.", kMayChange),
      KEY(checkpoint.keep_every_steps, IntegerKind{0, kMany},
          "Keep the first checkpoint at or after each multiple of N steps permanently. 0: none.", kMayChange),
      KEY(checkpoint.keep_best, IntegerKind{0, kMany},
          "Also keep the N best checkpoints; a checkpoint is then saved after each evaluation. 0: none.", kMayChangeForAll),
      KEY(checkpoint.best_by, TextKind{}, "Evaluation metric by which keep_best ranks checkpoints.", kMayChange),
      KEY(checkpoint.best_is, NameKind{{"auto", "highest", "lowest"}},
          "Whether the highest or the lowest value of best_by is best. auto: highest for a name that ends in \"accuracy\", "
          "lowest for one that ends in \"loss\".",
          kMayChange),
      KEY(checkpoint.background, BoolKind{},
          "Copy the state to host memory, and write the checkpoint from the copy while training continues. false: training "
          "waits for the write, and no copy is made.",
          kMayChange),
      KEY(checkpoint.wait_for_room_s, NumberKind{},
          "Seconds to wait for free space if the disk is full when the run writes its last checkpoint. If the disk stays full, "
          "the steps since the previous checkpoint are lost. 0: no wait.",
          kMayChange),
      KEY(checkpoint.local_dir, TextKind{.may_be_empty = true, .path = true},
          "Absolute path of a folder on each node's own disk: one worker of each node keeps a copy of the newest two "
          "checkpoints there. Empty: no copies.",
          kMayChange),

      KEY(ddp.backend, NameKind{{"auto", "shared", "gloo", "nccl"}},
          "Communication between workers. shared: shared memory, for workers on CPUs of one machine. auto: shared for two such "
          "workers, otherwise gloo on CPUs and nccl on GPUs.",
          kMayChange),
      KEY(ddp.bucket_mb, NumberKind{.max = 65536, .above_min = true}, "Size of a bucket of gradients, in MiB."),
      KEY(ddp.first_bucket_mb, NumberKind{.max = 65536, .above_min = true},
          "Size of the first bucket, in MiB. A small first bucket starts communication early."),
      KEY(ddp.find_unused_parameters, BoolKind{},
          "Detect in each step which parameters received no gradient. Needed if some steps do not use all parameters."),
      KEY(ddp.static_graph, BoolKind{}, "Assume that every step uses the same parameters."),
      KEY(ddp.gradient_as_bucket_view, BoolKind{}, "Store gradients in the buckets, which saves a copy."),
      KEY(ddp.compress, NameKind{{"none", "fp16", "bf16"}},
          "Sum gradients over the workers in a 16-bit format, as PyTorch's hooks fp16_compress_hook and bf16_compress_hook do.",
          kAddedLater),
      KEY(ddp.timeout_s, NumberKind{.max = 1e7, .above_min = true}, "Timeout of a collective in seconds.", kMayChange),
      KEY(ddp.compare_every_steps, IntegerKind{0, kMany},
          "Check every N optimizer steps and before each save that all workers have the same training state. 0: check only "
          "when a lost worker is replaced.",
          kMayChangeForAll),

      KEY(grad_scaler.init_scale, NumberKind{.max = 1e30, .above_min = true}, "Initial loss scale.", kAddedLater),
      KEY(grad_scaler.growth_factor, NumberKind{.min = 1, .above_min = true},
          "Factor by which the scale grows after growth_interval consecutive steps with finite gradients.", kAddedLater),
      KEY(grad_scaler.backoff_factor, NumberKind{.max = 1, .above_min = true, .below_max = true},
          "Factor applied to the scale after a step with a gradient that is not finite. Such a step changes no weight.",
          kAddedLater),
      KEY(grad_scaler.growth_interval, IntegerKind{1, kMany}, "Consecutive steps with finite gradients before the scale grows.",
          kAddedLater),

      KEY(log.every_steps, IntegerKind{1, kMany}, "Write a record to metrics.jsonl every N optimizer steps.", kMayChangeForAll),
      KEY(log.tensorboard, BoolKind{}, "Also write TensorBoard event files.", kMayChange),
      KEY(log.trace_step, IntegerKind{0, kMany},
          "First step to trace with PyTorch's profiler. The files are in traces/ of the run directory; ui.perfetto.dev shows "
          "them. 0: no trace.",
          kMayChange),
      KEY(log.trace_steps, IntegerKind{1, 1000}, "Number of steps to trace.", kMayChange),
      KEY(log.trace_ranks, IntegerListKind{.min = 0}, "Ranks to trace.", kMayChange),
  };
  return keys;
}
#undef KEY

}  // namespace

bool Key::exists_for(const Json& type) const {
  return section_types.empty() || std::ranges::count(section_types, type.get_ref<const std::string&>()) > 0;
}

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
      {"",
       "The configuration of a training run. Keys without a section set the length of the run, the batch size, the device and "
       "the number format."},
      {"model", "The network."},
      {"model.lora", "Low-rank updates of linear layers, which are trained instead of the model's own weights."},
      {"data", "The data set and how it is prepared."},
      {"data.augment", "Random augmentation of training images. It depends only on the seed, the epoch and the sample."},
      {"data.validation",
       "Training samples that are held out from training; the seed chooses them. Evaluations use them in addition to the test "
       "set; their metrics are called validation_loss and so on."},
      {"optimizer", "How gradients update the weights."},
      {"optimizer.ema", "An exponential moving average of the weights, which evaluations and exports use."},
      {"schedule", "The learning rate factor over the run."},
      {"early_stopping", "When to end the run before its last step."},
      {"checkpoint", "When to save, how, and what to keep."},
      {"ddp", "How gradients are averaged between workers."},
      {"grad_scaler", "Loss scaling for precision fp16, with the names and defaults of torch.amp.GradScaler."},
      {"log", "Output during training."},
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
  return key.section_types.empty() || key.exists_for(find_key(key.section + ".type")->get(config));
}

}  // namespace ddprun
