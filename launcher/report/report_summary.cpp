#include "launcher/report/report_summary.hpp"

#include <fstream>
#include <nlohmann/json.hpp>

#include "launcher/events/progress.hpp"
#include "launcher/report/report_metrics.hpp"

namespace ddprun {

std::string already_done(const Plan& plan, const RunState& state) {
  using Json = nlohmann::ordered_json;
  std::ifstream in(state.layout.report());
  Json report = Json::parse(in, nullptr, false);
  const Json evaluation = report.is_object() ? report.value("evaluation", Json()) : Json();
  const std::int64_t step = state.latest_step.value_or(0);
  const std::string checkpoint = state.layout.checkpoint(step).string();
  if (plan.json) {
    const Json line{{"event", "already_done"},
                    {"step", step},
                    {"checkpoint", checkpoint},
                    {"evaluation", evaluation},
                    {"run_dir", state.layout.root.string()}};
    return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  std::string text = plan.title + " is already done: " + format_count(step) + " steps, checkpoint " + checkpoint;
  if (const MetricList figures = evaluation_metrics(evaluation); !figures.empty()) {
    text += ", last evaluation: test " + metrics_text(figures);
  }
  const std::string limit = plan.config->max_steps > 0 ? "\"epochs\" or \"max_steps\"" : "\"epochs\"";
  return text + ". To train longer, increase " + limit + "; to start over, use --fresh.\n";
}

}  // namespace ddprun
