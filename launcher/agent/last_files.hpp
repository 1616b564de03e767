// Before it ends, a job waits until all its files are written, however slow a file system is. These are its logs, its report,
// the node's record and the console's own files. After two seconds a message names the file. If that file is stderr itself, the
// message goes to stdout.
#pragma once

#include <chrono>
#include <initializer_list>
#include <string>

#include "common/system/file_queue.hpp"
#include "launcher/output/console_writer.hpp"

namespace ddprun {

inline void finish_files(ConsoleWriter& console, std::initializer_list<FileQueue*> queues,
                         std::chrono::milliseconds named_after = std::chrono::seconds(2)) {
  const auto finish = [&](FileQueue& queue, Stream names_it) {
    if (queue.finish_within(named_after)) return;
    const FileQueue::About file = queue.waits_for();
    console.line(names_it, "ddprun: the job is over and waits for its files: " +
                               (file && !file->empty() ? file->string() : std::string("one of them")) +
                               " takes nothing. ddprun ends when that does");
    queue.finish();
  };
  for (FileQueue* queue : queues)
    if (queue != nullptr) finish(*queue, Stream::kStderr);
  for (const ConsoleWriter::StreamFile& file : console.files())
    finish(*file.queue, file.stream == Stream::kStdout ? Stream::kStderr : Stream::kStdout);
}

}  // namespace ddprun
