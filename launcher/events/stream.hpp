// The two output streams of a process.
#pragma once

namespace ddprun {

enum class Stream { kStdout, kStderr };

}  // namespace ddprun
