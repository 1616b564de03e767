// `ddprun link-torchrun`: creates or removes a link named torchrun, through which scripts that call torchrun start ddprun.
// run_subcommand() calls it. A torchrun that is not a link to ddprun belongs to another package: it is left unchanged, or
// renamed if --force is given.
//
// Note [A link and not a wheel] The usual way with pip would be a second wheel that contains a script named torchrun. But pip
// replaces PyTorch's script without a message, and removes both scripts when the wheel is uninstalled. It also restores
// PyTorch's script each time a new version of torch is installed.
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

constexpr const char* kBackupSuffix = ".before-ddprun";

// Returns true for a link to a file named ddprun in any folder, even if that file was removed.
bool leads_to_ddprun(const fs::path& link) {
  std::error_code error;
  return fs::is_symlink(fs::symlink_status(link, error)) && fs::read_symlink(link, error).filename() == "ddprun";
}

bool is_there(const fs::path& file) {
  std::error_code error;
  return fs::symlink_status(file, error).type() != fs::file_type::not_found;
}

fs::path backup_of(const fs::path& link) {
  return fs::path(link).concat(kBackupSuffix);
}

std::string named(const fs::path& file) {
  return printable(file.string());
}

// Prints a message if the shell would not start this link for the command torchrun: the link is not in PATH, or another
// torchrun comes first.
void warn_if_hidden(const fs::path& link) {
  const auto first = find_on_path("torchrun");
  std::error_code error;
  if (!first) {
    print("PATH does not contain " + named(link.parent_path()) +
          ": add it to PATH, before the folder with PyTorch's torchrun\n");
  } else if (!fs::equivalent(*first, link, error)) {
    print("the command torchrun still starts " + named(*first) + ", which comes first in PATH: put " +
          named(link.parent_path()) + " before its folder in PATH\n");
  }
}

void make_link(const fs::path& link, const fs::path& program, bool force) {
  const bool in_its_folder = fs::equivalent(link.parent_path(), program.parent_path());
  const fs::path target = in_its_folder ? program.filename() : program;
  bool keeps_backup = false;
  if (leads_to_ddprun(link)) {
    fs::remove(link);
  } else if (is_there(link)) {
    if (!force) {
      throw UsageError(named(link) +
                       " exists and is not a link to ddprun: choose a folder that comes earlier in PATH, or replace " +
                       "the file with --force, which keeps the old one as " + named(backup_of(link).filename()));
    }
    fs::rename(link, backup_of(link));
    keeps_backup = true;
  }
  fs::create_symlink(target, link);
  print(named(link) + " -> " + named(target) +
        (keeps_backup ? ", PyTorch's torchrun is kept as " + named(backup_of(link)) : "") + "\n");
  warn_if_hidden(link);
}

void remove_link(const fs::path& link) {
  if (is_there(link) && !leads_to_ddprun(link))
    throw UsageError(named(link) + " was not removed, since it is not a link to ddprun");
  const bool was_there = fs::remove(link);
  const bool put_back = is_there(backup_of(link));
  if (put_back) fs::rename(backup_of(link), link);
  print(named(link) + (put_back ? " is restored" : was_there ? " is removed" : " did not exist") + "\n");
}

}  // namespace

int link_torchrun(const SubcommandArguments& arguments) {
  const fs::path named_folder = arguments.only_word("FOLDER");
  arguments.refuse_both("--force", "--remove");
  const auto program = this_machine().next_to_self("ddprun");
  if (!program) throw UsageError("link-torchrun needs a program file named ddprun: rename this program to ddprun");
  const fs::path folder = named_folder.empty() ? program->parent_path() : named_folder;
  try {
    if (!fs::is_directory(folder)) throw UsageError(named(folder) + " is not a folder");
    const fs::path link = fs::canonical(folder) / "torchrun";
    if (arguments.has("--remove")) {
      remove_link(link);
    } else {
      make_link(link, *program, arguments.has("--force"));
    }
  } catch (const fs::filesystem_error& error) {
    throw UsageError("cannot change " + named(folder / "torchrun") + ": " + error.code().message());
  }
  return 0;
}

}  // namespace ddprun
