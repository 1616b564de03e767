// Implementation of report.hpp: connects the document with the file, and corrects event times if the wall clock is set.
#include "launcher/report/report.hpp"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "common/system/host_name.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// Threshold in nanoseconds (100 ms) above which a difference between the two clocks means that the wall clock was set. Smaller
// differences occur because the clocks are read one after the other.
constexpr std::int64_t kClockStepThreshold = 100'000'000;

std::optional<std::string> read_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

fs::path free_name(const fs::path& file) {
  for (int number = 1;; ++number) {
    fs::path name = file.string() + ".bad-" + std::to_string(number);
    if (!fs::exists(name)) return name;
  }
}

}  // namespace

Report::Report(const fs::path& file, ReportFacts facts)
    : file_(file),
      document_(std::move(facts), host_name(), ::getpid(), read_file(file)),
      warning_(document_.earlier_problem()) {
  if (!document_.earlier_is_damaged()) return;
  const fs::path aside = free_name(file);
  std::error_code ignored;
  fs::rename(file, aside, ignored);
  warning_ = "report.json was damaged; it is kept as " + aside.filename().string();
}

Report::~Report() {
  const int error = is_over_ && document_.facts().unwritten ? file_.error() : 0;
  if (error != 0) document_.facts().unwritten(std::strerror(error));
}

std::int64_t Report::clock_was_set_ns() const {
  const std::chrono::nanoseconds passed = std::chrono::steady_clock::now() - opened_;
  const std::int64_t moved = realtime_ns() - opened_ns_ - passed.count();
  return std::abs(moved) < kClockStepThreshold ? 0 : moved;
}

void Report::on(const RunEvent& event) {
  using Write = ReportDocument::Write;
  const std::int64_t was_set = clock_was_set_ns();
  switch (document_.on(event, was_set, realtime_ns() - was_set)) {
    case Write::kNo:
      return;
    case Write::kNow:
      return file_.write(document_.text());
    case Write::kLater:
      if (later_) {
        return later_([this, token = std::weak_ptr<int>(alive_)] {
          if (!token.expired()) file_.write(document_.text());
        });
      }
      [[fallthrough]];
    case Write::kDeferred:
      return file_.write_deferred(document_.text());
    case Write::kLast:
      is_over_ = true;
      return file_.write(document_.text(), document_.facts().synced ? ReportFile::Sync::kYes : ReportFile::Sync::kNo);
  }
}

void Report::write_behind(FileQueue& files, std::function<void(std::string_view text)> keep, Later later) {
  later_ = later;
  file_.write_behind(files, std::move(keep), std::move(later));
}

}  // namespace ddprun
