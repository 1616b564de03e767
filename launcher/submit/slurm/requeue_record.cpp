#include "launcher/submit/slurm/requeue_record.hpp"

#include <nlohmann/json.hpp>

namespace ddprun {
namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;
constexpr std::int64_t kMaxCount = 1'000'000'000;

const Json& member(const Json& object, const char* key) {
  static const Json null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

std::optional<std::int64_t> whole(const Json& value) {
  return value.is_number_integer() ? std::optional(value.get<std::int64_t>()) : std::nullopt;
}

std::int64_t count(const Json& object, const char* key, std::int64_t otherwise = 0) {
  const std::int64_t number = whole(member(object, key)).value_or(otherwise);
  return number < otherwise || number > kMaxCount ? otherwise : number;
}

const Json& last_of(const Json& list) {
  static const Json null;
  return list.is_array() && !list.empty() ? list.back() : null;
}

}  // namespace

std::filesystem::path requeue_file(const std::filesystem::path& run_dir) {
  return run_dir / "requeues.json";
}

RequeueRecord parse_requeue_record(std::string_view text) {
  const Json document = Json::parse(text, nullptr, false);
  RequeueRecord record;
  if (count(document, "version") != kVersion || !member(document, "job").is_string()) return record;
  record.job = document["job"].get<std::string>();
  record.failures = static_cast<int>(count(document, "failures"));
  record.timeouts = static_cast<int>(count(document, "timeouts"));
  record.requeues = static_cast<int>(count(document, "requeues"));
  record.published = count(document, "published");
  record.newest_step = count(document, "newest_step", -1);
  return record;
}

std::string requeue_text(const RequeueRecord& record) {
  return Json{{"version", kVersion},
              {"job", record.job},
              {"failures", record.failures},
              {"timeouts", record.timeouts},
              {"requeues", record.requeues},
              {"published", record.published},
              {"newest_step", record.newest_step}}
             .dump(1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

ReportedRun parse_reported_run(std::string_view text, const std::optional<SlurmStartId>& start) {
  const Json report = Json::parse(text, nullptr, false);
  ReportedRun run;
  const Json& checkpoints = member(report, "checkpoints");
  run.published = count(checkpoints, "published");
  if (const Json& save = member(member(checkpoints, "latest"), "save_s"); save.is_number()) run.save_s = save.get<double>();
  const Json& slurm = member(last_of(member(report, "invocations")), "slurm");
  if (!start || member(slurm, "job") != start->job || whole(member(slurm, "restarts")) != start->restarts) return run;
  const auto code = whole(member(member(report, "exit"), "code"));
  if (!code || *code < 0 || *code > 255) return run;
  run.exit_code = static_cast<int>(*code);
  const Json& cause = member(last_of(member(report, "rounds")), "first_cause");
  run.is_workers_code = member(cause, "cause") == "exit_code" && whole(member(cause, "exit_code")) == code;
  return run;
}

}  // namespace ddprun
