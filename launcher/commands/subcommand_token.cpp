// `ddprun token`: prints where the job's token is stored, and creates one if there is none. run_subcommand() calls it. It
// prints the token itself only with --show, and then only to stdout.
#include <filesystem>
#include <string>

#include "common/base/error.hpp"
#include "common/system/print.hpp"
#include "launcher/commands/subcommand.hpp"
#include "rendezvous/identity/token.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenUsage = "usage: ddprun token [--run-dir DIR | --token-file FILE | --new FILE] [--show]";
constexpr const char* kTokenHelp =
    "Says where the token is that a job on several machines would use here, and makes one where none is.\n"
    "  --run-dir DIR      the job's run directory\n"
    "  --token-file FILE  this file\n"
    "  --new FILE         make this file, readable by you only; it must not be there yet\n"
    "  --show             print the token itself\n"
    "Without any: DDPRUN_TOKEN, else $XDG_CONFIG_HOME/ddprun/token (~/.config/ddprun/token).\n";

struct Request {
  fs::path run_dir;
  fs::path token_file;
  fs::path new_file;
  bool show = false;
  bool help = false;
};

Request parse(std::span<const std::string> args) {
  Request request;
  int places = 0;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::size_t equals = args[i].find('=');
    const std::string name = args[i].substr(0, equals);
    if (name == "--help" || name == "-h") {
      request.help = true;
    } else if (name == "--show") {
      request.show = true;
    } else if (name == "--run-dir" || name == "--token-file" || name == "--new") {
      std::string value = equals != std::string::npos ? args[i].substr(equals + 1) : i + 1 < args.size() ? args[++i] : "";
      if (value.empty()) throw UsageError(name + " needs a path; " + kTokenUsage);
      (name == "--run-dir" ? request.run_dir : name == "--new" ? request.new_file : request.token_file) = std::move(value);
      ++places;
    } else {
      throw UsageError("'" + args[i] + "' is one too many; " + kTokenUsage);
    }
  }
  if (places > 1) throw UsageError(std::string("only one of --run-dir, --token-file and --new can be given; ") + kTokenUsage);
  return request;
}

FoundToken make_new(const fs::path& file) {
  if (!make_token_file(file, new_token())) {
    throw UsageError(file.string() +
                     " is there already, and a token is never replaced: choose another name, or remove it first");
  }
  return {read_token_file(file), file.string(), file, true};
}

}  // namespace

int show_token(std::span<const std::string> args) {
  const Request request = parse(args);
  if (request.help) {
    print(std::string(kTokenUsage) + "\n" + kTokenHelp);
    return 0;
  }
  TokenSources sources;
  sources.token_file = request.token_file;
  sources.run_dir = request.run_dir;
  sources.variable = take_token_variable();
  sources.user_file = token_file_of_user();
  const FoundToken found = request.new_file.empty() ? find_token(std::move(sources)) : make_new(request.new_file);
  if (request.show) {
    print(std::string(found.token.text()) + "\n");
    return 0;
  }
  std::error_code ignored;
  print((found.file.empty() ? found.source : fs::absolute(found.file, ignored).string()) + (found.made ? " (made now)" : "") +
        "\n");
  return 0;
}

}  // namespace ddprun
