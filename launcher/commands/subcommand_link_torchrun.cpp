// `ddprun link-torchrun`: creates the link through which scripts that call torchrun get ddprun, and removes it again.
// run_subcommand() calls it. A torchrun that is not a link to a ddprun belongs to another package: it is left unchanged, or
// with --force kept under another name.
//
// Note [A link and not a wheel]
// The usual way with pip would be a second wheel with a script of that name. But pip replaces PyTorch's script without a
// message, removes both when the wheel is uninstalled, and restores PyTorch's script with each new torch.
#include <filesystem>
#include <string>
#include <system_error>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/system/print.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/machine/detect.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLinkUsage = "usage: ddprun link-torchrun [FOLDER] [--force | --remove]";
constexpr const char* kLinkHelp =
    "Makes a link named torchrun that leads to this ddprun, so that scripts which call torchrun need no edit.\n"
    "  FOLDER    where, such as ~/bin; without it the folder that ddprun lies in\n"
    "  --force   put it in the place of PyTorch's torchrun, which is kept as torchrun.before-ddprun\n"
    "  --remove  take the link away, and put back what --force has kept\n";
constexpr const char* kKeptSuffix = ".before-ddprun";

struct LinkRequest {
  fs::path folder;
  bool force = false;
  bool remove = false;
  bool help = false;
};

LinkRequest parse_link_request(std::span<const std::string> args) {
  LinkRequest request;
  for (const std::string& word : args) {
    if (word == "--help" || word == "-h") {
      request.help = true;
    } else if (word == "--force") {
      request.force = true;
    } else if (word == "--remove") {
      request.remove = true;
    } else if (word.starts_with("-") || word.empty() || !request.folder.empty()) {
      throw UsageError("'" + printable(word) + "' is one too many; " + kLinkUsage);
    } else {
      request.folder = word;
    }
  }
  if (request.force && request.remove) throw UsageError(std::string("--force and --remove exclude each other; ") + kLinkUsage);
  return request;
}

// True for a link to our ddprun, or to a ddprun in any other place, even if that was removed.
bool leads_to_ddprun(const fs::path& link) {
  std::error_code error;
  return fs::is_symlink(fs::symlink_status(link, error)) && fs::read_symlink(link, error).filename() == "ddprun";
}

bool is_there(const fs::path& file) {
  std::error_code error;
  return fs::symlink_status(file, error).type() != fs::file_type::not_found;
}

fs::path kept_of(const fs::path& link) {
  return fs::path(link).concat(kKeptSuffix);
}

std::string named(const fs::path& file) {
  return printable(file.string());
}

// Prints which program the shell finds under the name torchrun, if it is not the link.
void say_what_hides_it(const fs::path& link) {
  const auto first = find_on_path("torchrun");
  std::error_code error;
  if (!first) {
    print("PATH does not have " + named(link.parent_path()) + ": put it there, before the folder of PyTorch's torchrun\n");
  } else if (!fs::equivalent(*first, link, error)) {
    print("PATH has " + named(*first) + " before it, which a shell starts: put " + named(link.parent_path()) +
          " before that\n");
  }
}

void make_link(const fs::path& link, const fs::path& program, bool force) {
  const bool in_its_folder = fs::equivalent(link.parent_path(), program.parent_path());
  const fs::path target = in_its_folder ? program.filename() : program;
  bool keeps = false;
  if (leads_to_ddprun(link)) {
    fs::remove(link);
  } else if (is_there(link)) {
    if (!force) {
      throw UsageError(named(link) + " is there and is not a link to ddprun: name another folder, which PATH has before " +
                       "that one, or replace it with --force (it is kept as " + named(kept_of(link).filename()) + ")");
    }
    fs::rename(link, kept_of(link));
    keeps = true;
  }
  fs::create_symlink(target, link);
  print(named(link) + " -> " + named(target) + (keeps ? ", PyTorch's is kept as " + named(kept_of(link)) : "") + "\n");
  say_what_hides_it(link);
}

void remove_link(const fs::path& link) {
  if (is_there(link) && !leads_to_ddprun(link)) throw UsageError(named(link) + " is not a link to ddprun: it stays");
  const bool was_there = fs::remove(link);
  const bool put_back = is_there(kept_of(link));
  if (put_back) fs::rename(kept_of(link), link);
  print(named(link) + (put_back ? " is again what it was" : was_there ? " is gone" : " was not there") + "\n");
}

}  // namespace

int link_torchrun(std::span<const std::string> args) {
  const LinkRequest request = parse_link_request(args);
  if (request.help) {
    print(std::string(kLinkUsage) + "\n" + kLinkHelp);
    return 0;
  }
  const auto program = this_machine().beside_self("ddprun");
  if (!program) throw UsageError("this program is not named ddprun, and a link to it would not be known again");
  const fs::path folder = request.folder.empty() ? program->parent_path() : request.folder;
  try {
    if (!fs::is_directory(folder)) throw UsageError(named(folder) + " is not a folder");
    const fs::path link = fs::canonical(folder) / "torchrun";
    if (request.remove) {
      remove_link(link);
    } else {
      make_link(link, *program, request.force);
    }
  } catch (const fs::filesystem_error& error) {
    throw UsageError("cannot change " + named(folder / "torchrun") + ": " + error.code().message());
  }
  return 0;
}

}  // namespace ddprun
