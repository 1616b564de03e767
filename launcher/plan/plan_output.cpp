// Implementation of plan_output.hpp. Lists of ranks, streams and filters follow torchrun's rules.
#include "launcher/plan/plan_output.hpp"

#include <array>

#include "common/base/split.hpp"
#include "launcher/options/parse_number.hpp"

namespace ddprun {
namespace {

constexpr std::int64_t kMaxRank = 1'000'000;

// Output options that have no effect with a train.json, since worker output is in the run directory.
constexpr std::array<std::string_view, 7> kScriptOnlyOptions{"redirects",
                                                             "tee",
                                                             "no-pty",
                                                             "local-ranks-filter",
                                                             "duplicate-stdout-filters",
                                                             "duplicate-stderr-filters",
                                                             "log-line-prefix-template"};

std::optional<Streams> streams_of(std::string_view digit) {
  if (digit.size() != 1 || digit[0] < '0' || digit[0] > '3') return std::nullopt;
  return static_cast<Streams>(digit[0] - '0');
}

bool only_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

void note_missing_ranks(std::string_view option, const std::set<int>& named, int workers, std::vector<std::string>& notes) {
  for (const int rank : named) {
    if (rank >= 0 && rank < workers) continue;
    notes.push_back("--" + std::string(option) + " names local rank " + std::to_string(rank) + ", but there " +
                    (workers == 1 ? "is one worker" : "are " + std::to_string(workers) + " workers"));
  }
}

std::set<int> ranks_of(const StreamsByRank& streams) {
  std::set<int> ranks;
  for (const auto& [rank, which] : streams.by_local_rank) ranks.insert(rank);
  return ranks;
}

void read_output_options(Plan& plan, const Settings& settings) {
  OutputPlan& output = plan.output;
  const auto note_missing = [&](std::string_view option, const std::set<int>& named) {
    note_missing_ranks(option, named, plan.nproc_per_node, plan.notes);
  };
  output.redirects = parse_streams("redirects", *settings.find("redirects"));
  output.tee = parse_streams("tee", *settings.find("tee"));
  note_missing("redirects", ranks_of(output.redirects));
  note_missing("tee", ranks_of(output.tee));
  if (const Setting* filter = settings.find("local-ranks-filter"); filter != nullptr && !filter->value.empty()) {
    output.local_ranks_filter = parse_local_ranks("local-ranks-filter", *filter);
    note_missing("local-ranks-filter", *output.local_ranks_filter);
  }
  if (const Setting* filters = settings.find("duplicate-stdout-filters")) output.stdout_filters = parse_filters(filters->value);
  if (const Setting* filters = settings.find("duplicate-stderr-filters")) output.stderr_filters = parse_filters(filters->value);
  const std::string prefix = settings.text("log-line-prefix-template");
  if (!prefix.empty()) output.prefix_template = prefix;
  output.terminals = !settings.flag("no-pty");
  output.no_files = settings.text("log-dir") == "/dev/null";
}

}  // namespace

StreamsByRank parse_streams(std::string_view option, const Setting& setting) {
  constexpr const char* kExpected = "0, 1 (stdout), 2 (stderr) or 3 (both), or one of them for each local rank, as in 0:1,1:2";
  StreamsByRank streams;
  if (const auto default_streams = streams_of(setting.value)) {
    streams.default_streams = *default_streams;
    return streams;
  }
  for (const std::string_view entry : split(setting.value, ',')) {
    const std::size_t colon = entry.find(':');
    const auto which = colon == std::string_view::npos ? std::nullopt : streams_of(entry.substr(colon + 1));
    const auto rank = which && only_digits(entry.substr(0, colon)) ? parse_whole(entry.substr(0, colon)) : std::nullopt;
    if (!rank || *rank > kMaxRank) refuse(option, setting, kExpected);
    streams.by_local_rank[static_cast<int>(*rank)] = *which;
  }
  return streams;
}

std::set<int> parse_local_ranks(std::string_view option, const Setting& setting) {
  std::set<int> ranks;
  for (const std::string_view word : split(setting.value, ',')) {
    const auto rank = parse_whole(word);
    if (!rank || *rank > kMaxRank || *rank < -kMaxRank) refuse(option, setting, "local ranks such as 0,1,2");
    ranks.insert(static_cast<int>(*rank));
  }
  return ranks;
}

std::vector<std::string> parse_filters(std::string_view text) {
  std::vector<std::string> filters(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      filters.back() += text[i];
    } else if (text.substr(i + 1).starts_with(',')) {
      filters.back() += ',';
      ++i;
    } else {
      filters.emplace_back();
    }
  }
  return filters;
}

void choose_output(Plan& plan, const Settings& settings) {
  if (!plan.trains()) read_output_options(plan, settings);
  for (const std::string_view option : kScriptOnlyOptions) {
    if (!settings.given(option)) continue;
    if (plan.trains()) {
      plan.notes.push_back("--" + std::string(option) + " has no effect with a train.json");
    } else {
      plan.record(option, *settings.find(option));
    }
  }
}

}  // namespace ddprun
