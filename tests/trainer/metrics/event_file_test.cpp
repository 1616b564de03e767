// Tests TensorBoard's event files: the bytes of records, and the files on disk. tests/whole_program/test_readers.py tests that
// the real tensorboard reads them.
#include "common/metrics/event_file.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <protozero/pbf_reader.hpp>
#include <set>

#include "common/metrics/event_record.hpp"
#include "tests/common/temporary_folder.hpp"
#include "tests/trainer/checkpoint/failing_calls.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;
using test::read_text;
using test::TemporaryFolder;
using test::write_text;

struct Event {
  std::string file_version;
  std::int64_t step = 0;
  std::string tag;
  float value = 0;
  int session_status = 0;
};

Event parse_event(const std::string& payload) {
  Event event;
  protozero::pbf_reader reader(payload);
  while (reader.next()) {
    switch (reader.tag()) {
      case 2:
        event.step = reader.get_int64();
        break;
      case 3:
        event.file_version = reader.get_string();
        break;
      case 5: {
        protozero::pbf_reader summary = reader.get_message();
        EXPECT_TRUE(summary.next(1));
        protozero::pbf_reader value = summary.get_message();
        EXPECT_TRUE(value.next(1));
        event.tag = value.get_string();
        EXPECT_TRUE(value.next(2));
        event.value = value.get_float();
        break;
      }
      case 7: {
        protozero::pbf_reader session = reader.get_message();
        EXPECT_TRUE(session.next(1));
        event.session_status = session.get_enum();
        break;
      }
      default:
        reader.skip();
    }
  }
  return event;
}

// Parses all records of a file and checks their lengths and checksums.
std::vector<Event> events_of(const fs::path& file) {
  std::string text = read_text(file);
  std::vector<Event> events;
  while (!text.empty()) {
    std::uint64_t length = 0;
    std::memcpy(&length, text.data(), sizeof length);
    const std::string payload = text.substr(12, length);
    EXPECT_EQ(text.substr(0, 16 + length), tfrecord(payload));
    events.push_back(parse_event(payload));
    text.erase(0, 16 + length);
  }
  return events;
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::set<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.insert(entry.path());
  return {files.begin(), files.end()};
}

// The CRC values are from RFC 3720, appendix B.4: 0x8A9136AA for 32 bytes 0x00, and 0x62A8AB43 for 32 bytes 0xFF. TensorFlow
// masks a CRC by a rotation and an addition.
TEST(TfRecord, MasksCastagnolisChecksum) {
  const auto unmasked = [](std::uint32_t masked) {
    const std::uint32_t rotated = masked - 0xA282EAD8U;
    return (rotated << 15) | (rotated >> 17);
  };
  EXPECT_EQ(unmasked(masked_crc32c(std::string(32, '\0'))), 0x8A9136AAU);
  EXPECT_EQ(unmasked(masked_crc32c(std::string(32, '\xff'))), 0x62A8AB43U);
  EXPECT_EQ(unmasked(masked_crc32c("123456789")), 0xE3069283U);
}

TEST(TfRecord, FramesAPayload) {
  const std::string record = tfrecord("abc");
  ASSERT_EQ(record.size(), 8U + 4U + 3U + 4U);
  EXPECT_EQ(record.substr(0, 8), std::string("\3\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 3), "abc");
}

TEST(EventFile, StartsWithTheVersionAndHasTheScalars) {
  TemporaryFolder folder;
  {
    EventFile file(folder / "tensorboard", 400, {});
    file.scalars(410, {{"train/loss", 0.5}, {"train/lr", 0.25}});
  }
  const std::vector<fs::path> files = files_in(folder / "tensorboard");
  ASSERT_EQ(files.size(), 1U);
  const std::vector<Event> events = events_of(files[0]);

  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_EQ(events[1].session_status, 1);
  EXPECT_EQ(events[1].step, 401);  // readers drop all events from this step on, so step 400 stays
  EXPECT_EQ(events[2].tag, "train/loss");
  EXPECT_EQ(events[2].step, 410);
  EXPECT_EQ(events[2].value, 0.5F);
  EXPECT_EQ(events[3].tag, "train/lr");
}

TEST(EventFile, StartedOverDropsEverything) {
  TemporaryFolder folder;
  { EventFile file(folder.path(), 0, {}); }
  EXPECT_EQ(events_of(files_in(folder.path()).at(0)).at(1).step, 0);
}

TEST(EventFile, ALaterFileSortsAfterEarlierOnes) {
  TemporaryFolder folder;
  write_text(folder / "events.out.tfevents.9000000000.other-host.9.9", "");  // as if written by a host whose clock was ahead
  for (int opened = 0; opened < 3; ++opened) {
    EventFile file(folder.path(), opened, {});
    EXPECT_EQ(events_of(files_in(folder.path()).back()).at(1).step, opened == 0 ? 0 : opened + 1);
  }
  EXPECT_EQ(files_in(folder.path()).size(), 4U);
}

TEST(EventFile, ScalarsAreWrittenImmediately) {
  TemporaryFolder folder;
  EventFile file(folder.path(), 0, {});
  file.scalars(1, {{"a", 1}});
  EXPECT_EQ(events_of(files_in(folder.path()).at(0)).size(), 3U);
}

TEST(EventFile, ReportsAFullDiskOnceAndContinues) {
  TemporaryFolder folder;
  std::vector<std::string> messages;
  EventFile file(folder.path(), 0, [&](const std::string& text) { messages.push_back(text); });
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{100, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  for (int step = 1; step < 4; ++step) {
    file.scalars(step, {{"a", 1}});
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  file.scalars(5, {{"a", 1}});

  EXPECT_EQ(messages.size(), 1U);
  // Readers stop at the torn record, so no record is written after it.
  EXPECT_EQ(fs::file_size(files_in(folder.path()).at(0)), 100U);
}

// A network file system is unavailable for a short time. The file is created later, and must then also contain the earlier
// records.
TEST(EventFile, RetriesCreationAndLosesNothing) {
  TemporaryFolder folder;
  std::vector<std::string> messages;
  const auto collect = [&](const std::string& text) { messages.push_back(text); };
  test::watch(folder.path(), {.kind = test::CallFault::Kind::kFailFromCall, .call = 0, .error = ESTALE});
  EventFile file(folder.path(), 0, collect);
  file.scalars(1, {{"a", 1}});
  test::stop_watching();
  EXPECT_EQ(files_in(folder.path()).size(), 0U);
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_NE(messages[0].find("Stale file handle; writing the TensorBoard file is retried"), std::string::npos) << messages[0];

  file.scalars(2, {{"a", 2}});
  ASSERT_EQ(files_in(folder.path()).size(), 1U);
  const std::vector<Event> events = events_of(files_in(folder.path()).at(0));
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[2].step, 1);
  EXPECT_EQ(events[3].step, 2);
  EXPECT_EQ(messages.size(), 1U);
}

TEST(EventFile, ReportsAnUncreatableFolderOnceAndContinues) {
  TemporaryFolder folder;
  write_text(folder / "tensorboard", "a file where a folder should be");
  std::vector<std::string> messages;
  EventFile file(folder / "tensorboard", 0, [&](const std::string& text) { messages.push_back(text); });
  file.scalars(1, {{"a", 1}});
  EXPECT_EQ(messages.size(), 1U);
}

}  // namespace
}  // namespace ddprun::trainer
