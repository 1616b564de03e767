// Links that another user made. Root, or a user in a colleague's folder, must not write through one: it may lead to a file of
// root, or of the user who runs the job. A link counts as another user's unless it and its folder belong to this user or root.
// So a user's own link, for example `logs` to a larger disk, is still followed.
#pragma once

#include <sys/types.h>

#include <filesystem>

namespace ddprun {

// Also false if the path does not exist or is not a link.
bool is_others_link(const std::filesystem::path& path) noexcept;

// open(2) that fails with ELOOP if the last component of the path is another user's link. A link that is created at the same
// moment is not followed either.
int open_unless_others_link(const std::filesystem::path& path, int flags, mode_t mode = 0) noexcept;

// Throws UsageError with the first name in the folder that is another user's link.
void refuse_others_links(const std::filesystem::path& folder);

}  // namespace ddprun
