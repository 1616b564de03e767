// At its end a job waits until its logs, its report and the node's record are written, however long a file system takes. If
// that takes two seconds, the console names the file that is waited for.
#pragma once

#include <chrono>
#include <initializer_list>

#include "common/system/file_queue.hpp"
#include "launcher/output/console_writer.hpp"

namespace ddprun {

inline void finish_files(ConsoleWriter& console, std::initializer_list<FileQueue*> queues) {
  constexpr std::chrono::seconds kIsNamedAfter{2};
  for (FileQueue* queue : queues) {
    if (queue == nullptr || queue->finish_within(kIsNamedAfter)) continue;
    const FileQueue::About file = queue->waits_for();
    console.line(Stream::kStderr,
                 "ddprun: the job is over and waits for its files: " + (file ? file->string() : std::string("one of them")) +
                     " takes nothing. ddprun ends when that does");
    queue->finish();
  }
}

}  // namespace ddprun
