// `ddprun token`: prints where the job's token is stored, and creates one if there is none. run_subcommand() calls it. It
// prints the token itself only with --show, and then only to stdout.
#include <array>
#include <filesystem>
#include <string>

#include "common/base/error.hpp"
#include "common/system/print.hpp"
#include "launcher/commands/subcommand.hpp"
#include "rendezvous/identity/token_file.hpp"
#include "rendezvous/identity/token_search.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

FoundToken make_new(const fs::path& file) {
  if (!make_token_file(file, new_token())) {
    throw UsageError(file.string() +
                     " already exists, and ddprun never replaces a token: choose another name, or remove the "
                     "file first");
  }
  return {read_token_file(file), file.string(), file, true};
}

}  // namespace

int show_token(const SubcommandArguments& arguments) {
  arguments.refuse_words();
  constexpr std::array<std::string_view, 3> kPlaces{"--run-dir", "--token-file", "--new"};
  const auto path_of = [&](std::string_view option) { return arguments.value(option, "a path").value_or(""); };
  TokenSources sources;
  sources.token_file = path_of("--token-file");
  sources.run_dir = path_of("--run-dir");
  const fs::path new_file = path_of("--new");
  if (arguments.count(kPlaces) > 1) arguments.refuse("only one of --run-dir, --token-file and --new can be given");
  sources.variable = take_token_variable();
  sources.user_file = token_file_of_user();
  const FoundToken found = new_file.empty() ? find_token(std::move(sources)) : make_new(new_file);
  if (arguments.has("--show")) {
    print(std::string(found.token.text()) + "\n");
    return 0;
  }
  std::error_code ignored;
  print((found.file.empty() ? found.source : fs::absolute(found.file, ignored).string()) +
        (found.made ? " (created now)" : "") + "\n");
  return 0;
}

}  // namespace ddprun
