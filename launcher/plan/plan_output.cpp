// Implementation of plan_output.hpp: torchrun's rules for lists of ranks, streams and filters.
#include "launcher/plan/plan_output.hpp"

#include "launcher/options/parse_number.hpp"

namespace ddprun {
namespace {

constexpr std::int64_t kHighestRank = 1'000'000;

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

}  // namespace

StreamsByRank parse_streams(std::string_view option, const Setting& setting) {
  constexpr const char* kExpected = "0, 1 (stdout), 2 (stderr) or 3 (both), or such by local rank as in 0:1,1:2";
  StreamsByRank streams;
  std::string_view rest = setting.value;
  if (const auto everyone = streams_of(rest)) {
    streams.everyone = *everyone;
    return streams;
  }
  for (;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view entry = rest.substr(0, comma);
    const std::size_t colon = entry.find(':');
    const auto which = colon == std::string_view::npos ? std::nullopt : streams_of(entry.substr(colon + 1));
    const auto rank = which && only_digits(entry.substr(0, colon)) ? parse_whole(entry.substr(0, colon)) : std::nullopt;
    if (!rank || *rank > kHighestRank) refuse(option, setting, kExpected);
    streams.by_local_rank[static_cast<int>(*rank)] = *which;
    if (comma == std::string_view::npos) return streams;
    rest.remove_prefix(comma + 1);
  }
}

std::set<int> parse_local_ranks(std::string_view option, const Setting& setting) {
  std::set<int> ranks;
  std::string_view rest = setting.value;
  for (;;) {
    const std::size_t comma = rest.find(',');
    const auto rank = parse_whole(rest.substr(0, comma));
    if (!rank || *rank > kHighestRank || *rank < -kHighestRank) refuse(option, setting, "local ranks such as 0,1,2");
    ranks.insert(static_cast<int>(*rank));
    if (comma == std::string_view::npos) return ranks;
    rest.remove_prefix(comma + 1);
  }
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

OutputChoice resolve_output(const Settings& settings, int workers) {
  OutputChoice choice;
  OutputPlan& plan = choice.plan;
  plan.redirects = parse_streams("redirects", *settings.find("redirects"));
  plan.tee = parse_streams("tee", *settings.find("tee"));
  note_missing_ranks("redirects", ranks_of(plan.redirects), workers, choice.notes);
  note_missing_ranks("tee", ranks_of(plan.tee), workers, choice.notes);
  if (const Setting* filter = settings.find("local-ranks-filter"); filter != nullptr && !filter->value.empty()) {
    plan.local_ranks_filter = parse_local_ranks("local-ranks-filter", *filter);
    note_missing_ranks("local-ranks-filter", *plan.local_ranks_filter, workers, choice.notes);
  }
  if (const Setting* filters = settings.find("duplicate-stdout-filters")) plan.stdout_filters = parse_filters(filters->value);
  if (const Setting* filters = settings.find("duplicate-stderr-filters")) plan.stderr_filters = parse_filters(filters->value);
  const std::string prefix = settings.text("log-line-prefix-template");
  if (!prefix.empty()) plan.prefix_template = prefix;
  plan.terminals = !settings.flag("no-pty");
  plan.no_files = settings.text("log-dir") == "/dev/null";
  return choice;
}

}  // namespace ddprun
