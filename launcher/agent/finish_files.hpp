// Waits at the end of a job until all its files are written: the logs, the report, the node's rendezvous record, and files to
// which stdout and stderr are redirected. There is no time limit. After two seconds a message names the file that does not
// accept data. If this file is stderr, the message goes to stdout.
#pragma once

#include <chrono>
#include <initializer_list>
#include <string>

#include "common/system/file_queue.hpp"
#include "launcher/output/console_writer.hpp"

namespace ddprun {

inline void finish_files(ConsoleWriter& console, std::initializer_list<FileQueue*> queues,
                         std::chrono::milliseconds report_after = std::chrono::seconds(2)) {
  const auto finish = [&](FileQueue& queue, Stream message_stream) {
    if (queue.finish_within(report_after)) return;
    const FileQueue::About file = queue.waits_for();
    console.line(message_stream,
                 "ddprun: the job has ended, but writing to " +
                     (file && !file->empty() ? file->string() : std::string("one of its files")) +
                     " is blocked (slow disk or network file system?): ddprun waits until the file is complete, and then "
                     "exits");
    queue.finish();
  };
  for (FileQueue* queue : queues)
    if (queue != nullptr) finish(*queue, Stream::kStderr);
  for (const ConsoleWriter::StreamFile& file : console.files())
    finish(*file.queue, file.stream == Stream::kStdout ? Stream::kStderr : Stream::kStdout);
}

}  // namespace ddprun
