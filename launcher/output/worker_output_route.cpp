#include "launcher/output/worker_output_route.hpp"

#include <optional>

#include "launcher/plan/argument_template.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {
namespace {

std::optional<std::string> value_of(std::string_view name, const RankAssignment& worker, std::string_view host) {
  if (name == "role_name") return worker.role;
  if (name == "rank") return std::to_string(worker.rank);
  if (name == "local_rank") return std::to_string(worker.local_rank);
  if (name == "hostname") return std::string(host);
  return std::nullopt;
}

}  // namespace

KeptFiles kept_files(const Plan& plan) {
  if (plan.kind == Plan::Kind::kTrain) return KeptFiles::kAll;
  if (plan.output.no_files) return KeptFiles::kNone;
  return !plan.run_dir.empty() && plan.log_dir.empty() ? KeptFiles::kAll : KeptFiles::kRequested;
}

OutputRoute route_of(const OutputPlan& plan, KeptFiles kept, int local_rank, Stream stream) {
  using Shown = OutputRoute::Shown;
  const auto names = [&](Streams streams) { return stream == Stream::kStdout ? has_stdout(streams) : has_stderr(streams); };
  const bool wanted = !plan.local_ranks_filter || plan.local_ranks_filter->contains(local_rank);
  if (kept == KeptFiles::kNone) return {.shown = wanted ? Shown::kRaw : Shown::kNo};

  const bool teed = names(plan.tee.of(local_rank));
  const bool redirected = names(plan.redirects.of(local_rank));
  OutputRoute route;
  route.file = teed || redirected || kept == KeptFiles::kAll;
  route.shown = !wanted ? Shown::kNo : teed ? Shown::kPrefixed : redirected ? Shown::kNo : Shown::kRaw;
  route.filtered = teed && wanted && !(stream == Stream::kStdout ? plan.stdout_filters : plan.stderr_filters).empty();
  return route;
}

std::string line_prefix(std::string_view prefix_template, const RankAssignment& worker, std::string_view host) {
  return fill_template(prefix_template, [&](std::string_view name) { return value_of(name, worker, host); });
}

}  // namespace ddprun
