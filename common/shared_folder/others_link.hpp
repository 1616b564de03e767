// Detects symbolic links that another user created. ddprun must not write through such a link. In a folder that several users
// share, another user could create a link to a file that only the user of the job may write. The job would then overwrite that
// file.
//
// A link is trusted only if the link and its folder belong to this user or root. So a user's own link is still followed, for
// example `logs` as a link to a larger disk.
#pragma once

#include <sys/types.h>

#include <filesystem>

namespace ddprun {

// Returns true if the path is a link of another user, and false if it does not exist or is not a link.
bool is_others_link(const std::filesystem::path& path) noexcept;

// Works like open(2), but fails with ELOOP if the last component of the path is a link of another user. This is true even if
// the link is created during the call.
int open_unless_others_link(const std::filesystem::path& path, int flags, mode_t mode = 0) noexcept;

// Throws UsageError if the folder contains a link of another user. The message contains the path of the first such link.
void refuse_others_links(const std::filesystem::path& folder);

}  // namespace ddprun
