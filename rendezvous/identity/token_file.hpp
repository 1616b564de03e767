// Reads and writes token files. The functions read a file and check its permissions, create a file, or wait for a file that
// another node creates on a shared file system. token_search.hpp and `ddprun token` call them.
//
// The permissions of a token file. A token file must belong to this user or to root, and only its owner may read it. There is
// one exception: a file that Kubernetes mounts from a Secret. The kubelet creates this file as root. A container that does not
// run as root can read the file only through the group of the pod (fsGroup), so the file has mode 0440. We accept read access
// of the group only for a file of root on a read-only mount, where no process of the container can change it. A file that all
// users may read is always refused.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "rendezvous/identity/token.hpp"

namespace ddprun {

struct TokenFileFacts {
  bool is_regular = false;
  uid_t owner = 0;
  mode_t mode = 0;  // permission bits only
  bool read_only_mount = false;
};

// Returns why `user` must not use this token file, for a message that starts with "the token file FILE ". Returns "" if the
// file is accepted. The code is pure: no I/O, no clock.
std::string token_file_problem(const TokenFileFacts& facts, uid_t user, const std::string& file);

// Reads a token file and checks it. Throws TokenError if the file cannot be read, if token_file_problem() refuses its
// permissions, or if its content is not a token.
Token read_token_file(const std::filesystem::path& file);

// Creates `file` atomically, with mode 0600 and the token `content`. Missing parent folders are created with mode 0700. Returns
// false if the file already exists; an existing file is never overwritten. Throws TokenError if the file can't be written.
bool make_token_file(const std::filesystem::path& file, const Token& content);

// Blocks the thread until `file` exists, for at most `patience`. Returns false on timeout. The function also works on shared
// file systems.
bool wait_for_token_file(const std::filesystem::path& file, std::chrono::milliseconds patience);

}  // namespace ddprun
