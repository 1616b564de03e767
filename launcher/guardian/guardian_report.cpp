// Implementation of guardian_report.hpp: the document is read, completed and replaced as a whole.
#include "launcher/guardian/guardian_report.hpp"

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/system/atomic_file.hpp"

namespace ddprun::guardian {

void complete_report(const std::filesystem::path& report) noexcept {
  try {
    std::ifstream file(report);
    if (!file) return;
    auto content = nlohmann::ordered_json::parse(file);
    const auto found = content.find("exit");
    if (!content.is_object() || (found != content.end() && !found->is_null())) return;
    content["exit"] = {{"code", 128 + SIGKILL}, {"why", "the agent was killed"}};
    write_file_atomically(report, content.dump(2) + "\n");
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace ddprun::guardian
