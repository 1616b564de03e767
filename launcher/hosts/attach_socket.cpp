#include "launcher/hosts/attach_socket.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "launcher/query/local/control_folder.hpp"
#include "rendezvous/passing/passed_descriptor.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// The file name differs from the name of an agent's control socket, so `ddprun ps` ignores it. The name is short, because the
// path of a socket has at most 107 bytes.
fs::path socket_in(const fs::path& folder, const std::string& id) {
  return folder / ("ssh-" + id);
}

sockaddr_un address_of(const fs::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.native().size() >= sizeof address.sun_path)
    throw UsageError("the path " + path.string() + " is too long for a socket: set XDG_RUNTIME_DIR to a shorter folder");
  std::memcpy(address.sun_path, path.c_str(), path.native().size() + 1);
  return address;
}

}  // namespace

AttachSocket::AttachSocket(const std::string& id) {
  const std::vector<fs::path> folders = control_folders();
  const auto usable = std::ranges::find_if(folders, create_control_folder);
  if (usable == folders.end())
    throw UsageError("no folder for sockets can be created: expected that " + folders.front().string() +
                     " is writable, and closed to other users; set XDG_RUNTIME_DIR to a folder of this user");
  path_ = socket_in(*usable, id);
  const sockaddr_un address = address_of(path_);
  std::error_code ignored;
  fs::remove(path_, ignored);  // a killed supervisor may have left this file
  listener_ = Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  constexpr int kMaxWaiting = 4;
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener_.get(), kMaxWaiting) != 0)
    throw UsageError("the socket " + path_.string() + " cannot be created: " + std::generic_category().message(errno) +
                     "; free space in that folder, or set XDG_RUNTIME_DIR to another folder of this user");
}

AttachSocket::~AttachSocket() {
  std::error_code ignored;
  fs::remove(path_, ignored);
}

void AttachSocket::accept() {
  in_ = Descriptor();
  arriving_ = Descriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

std::optional<AttachedConnection> AttachSocket::receive() {
  auto passed = receive_passed_descriptor(arriving_.get());
  if (!passed && errno == EAGAIN) return std::nullopt;
  if (!passed || passed->descriptor.get() < 0) {
    arriving_ = Descriptor();
    return std::nullopt;
  }
  if (in_.get() < 0) {
    in_ = std::move(passed->descriptor);
    return std::nullopt;
  }
  return AttachedConnection{.in = std::move(in_), .out = std::move(passed->descriptor), .process = std::move(arriving_)};
}

bool attach_to_supervisor(const std::string& id) {
  for (const fs::path& folder : control_folders()) {
    if (!is_private_control_folder(folder)) continue;
    const sockaddr_un address = address_of(socket_in(folder, id));
    const Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) continue;
    if (!pass_descriptor(socket.get(), STDIN_FILENO, "") || !pass_descriptor(socket.get(), STDOUT_FILENO, "")) continue;
    char none = 0;
    while (::read(socket.get(), &none, 1) < 0 && errno == EINTR) {
    }
    return true;
  }
  return false;
}

}  // namespace ddprun
