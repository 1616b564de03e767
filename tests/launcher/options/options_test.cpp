// Tests the command line: how argv is normalized, and which source of a value takes priority.
#include "launcher/options/options.hpp"

#include "launcher/options/man_page.hpp"
#include "launcher/options/option_spellings.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "common/base/error.hpp"
#include "launcher/options/options_table.hpp"
#include "launcher/options/torchrun_differences.hpp"

namespace ddprun {
namespace {

using Words = std::vector<std::string>;

Environment variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](std::string_view name) -> std::optional<std::string> {
    const auto it = values.find(std::string(name));
    if (it == values.end() || it->second.empty()) return std::nullopt;
    return it->second;
  };
}

std::string error_of(const Words& args, const Environment& environment = variables({})) {
  try {
    parse_arguments(args, environment);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Normalise, UnderscoresAreDashes) {
  EXPECT_EQ(normalise(Words{"--nproc_per_node=2", "--no_python", "x"}).options, (Words{"--nproc-per-node=2", "--no-python"}));
}

TEST(Normalise, ValuesAreJoinedToTheirOption) {
  EXPECT_EQ(normalise(Words{"--nproc-per-node", "2", "--max-restarts", "auto", "a.json"}).options,
            (Words{"--nproc-per-node=2", "--max-restarts=auto"}));
}

TEST(Normalise, UniquePrefixesAreCompleted) {
  EXPECT_EQ(normalise(Words{"--nnode", "1", "--no-py", "--master-p=7", "x"}).options,
            (Words{"--nnodes=1", "--no-python", "--master-port=7"}));
}

TEST(Normalise, AnExactNameIsNoPrefixOfAnother) {
  EXPECT_EQ(normalise(Words{"--role", "a", "x"}).options, (Words{"--role=a"}));
}

TEST(Normalise, AmbiguousPrefixesNameTheirCandidates) {
  EXPECT_EQ(error_of({"--master", "x", "s.py"}), "option --master is ambiguous: it could be --master-addr, --master-port");
}

TEST(Normalise, UnknownOptionsNameTheNearest) {
  EXPECT_EQ(error_of({"--nproc-per-nod3", "2", "x"}), "unknown option --nproc-per-nod3. Did you mean --nproc-per-node?");
  EXPECT_EQ(error_of({"--max_restart5", "x"}), "unknown option --max_restart5. Did you mean --max-restarts?");
  EXPECT_EQ(error_of({"--gpus", "2", "x"}), "unknown option --gpus. In ddprun it is --nproc-per-node");
  EXPECT_EQ(error_of({"--nprocs=2", "x"}), "unknown option --nprocs. In ddprun it is --nproc-per-node");
  EXPECT_EQ(error_of({"-n", "2", "x"}), "unknown option -n. In ddprun it is --nproc-per-node");
  EXPECT_EQ(error_of({"t.json", "--lr", "0.1"}),
            "unknown option --lr. In ddprun it is optimizer.lr=VALUE, written after the path of the train.json; write options "
            "of a script after the path of the script");
  EXPECT_EQ(error_of({"-x", "s.py"}), "unknown option -x; ddprun --help lists the options");
}

TEST(Normalise, ArgumentsAfterTheProgramAreUnchanged) {
  const NormalisedArguments result = normalise(Words{"-v", "train.py", "--nproc", "--", "-m", "--max_restarts=1"});
  EXPECT_EQ(result.options, (Words{"--verbose"}));
  EXPECT_EQ(result.positional, (Words{"train.py", "--nproc", "--", "-m", "--max_restarts=1"}));
}

TEST(Normalise, FirstDoubleDashBeforeTheProgramIsDropped) {
  EXPECT_EQ(normalise(Words{"-q", "--", "s.py", "--", "a"}).positional, (Words{"s.py", "--", "a"}));
  EXPECT_EQ(normalise(Words{"--", "--", "a"}).positional, (Words{"--", "a"}));
  EXPECT_EQ(normalise(Words{"--", "--weird.py"}).positional, (Words{"--weird.py"}));
}

TEST(Normalise, ShortOptionsMayShareADash) {
  EXPECT_EQ(normalise(Words{"-vvm", "pkg"}).options, (Words{"--verbose", "--verbose", "--module"}));
  EXPECT_EQ(normalise(Words{"-", "x"}).positional, (Words{"-", "x"}));
}

TEST(Normalise, ShortOptionsTakeValuesLikeTorchrun) {
  const Words tee{"--tee=3"};
  for (const Words& typed : {Words{"-t", "3", "x"}, Words{"-t3", "x"}, Words{"-t=3", "x"}}) {
    EXPECT_EQ(normalise(typed).options, tee);
    EXPECT_EQ(normalise(typed).positional, (Words{"x"}));
  }
  EXPECT_EQ(normalise(Words{"-mr0:1,1:2", "x"}).options, (Words{"--module", "--redirects=0:1,1:2"}));
  EXPECT_EQ(normalise(Words{"-mt", "1", "x"}).options, (Words{"--module", "--tee=1"}));
  EXPECT_EQ(error_of({"-t"}), "--tee needs a value (STREAMS), but the command line ends there");
  EXPECT_EQ(error_of({"-t", "-m", "x"}), "--tee needs a value (STREAMS), but '-m' follows");
}

TEST(Normalise, AUniqueTorchrunPrefixIsCompleted) {
  // If a prefix is ambiguous, the option of torchrun takes priority, so that commands for torchrun keep their meaning. For
  // example, --re could also mean --resume, --run could mean --run-dir, and --v could mean --verbose.
  EXPECT_EQ(normalise(Words{"--re=1", "--run", "--virt", "--tee", "1", "x"}).options,
            (Words{"--redirects=1", "--run-path", "--virtual-local-rank", "--tee=1"}));
  EXPECT_EQ(normalise(Words{"--resu=never", "x"}).options, (Words{"--resume=never"}));
  EXPECT_NE(error_of({"--duplicate=a", "x"}).find("is ambiguous"), std::string::npos);
}

TEST(Normalise, AWordWithSpacesIsAValue) {
  EXPECT_EQ(normalise(Words{"--log-line-prefix-template", "- ${rank} ", "x"}).options,
            (Words{"--log-line-prefix-template=- ${rank} "}));
  EXPECT_EQ(error_of({"--role", "--run-dir=a b", "x"}), "--role needs a value (NAME), but '--run-dir=a b' follows");
}

TEST(Normalise, AMissingValueIsAnError) {
  EXPECT_EQ(error_of({"--run-dir"}), "--run-dir needs a value (DIR), but the command line ends there");
  EXPECT_EQ(error_of({"--run-dir", "--json", "x"}), "--run-dir needs a value (DIR), but '--json' follows");
  EXPECT_EQ(error_of({"--json=1", "x"}), "--json takes no value, but was given '1'");
}

TEST(Normalise, NegativeNumbersAreValues) {
  EXPECT_EQ(normalise(Words{"--max-restarts", "-1", "x"}).options, (Words{"--max-restarts=-1"}));
}

TEST(Settings, TheFirstSourceWins) {
  const Environment environment = variables({{"DDPRUN_MAX_RESTARTS", "2"}, {"PET_MAX_RESTARTS", "3"}, {"PET_ROLE", "r"}});
  const Arguments with_flag = parse_arguments(Words{"--max-restarts", "1", "x"}, environment);
  EXPECT_EQ(with_flag.settings.text("max-restarts"), "1");
  EXPECT_EQ(with_flag.settings.find("max-restarts")->source, "flag --max-restarts");

  const Arguments without = parse_arguments(Words{"x"}, environment);
  EXPECT_EQ(without.settings.text("max-restarts"), "2");
  EXPECT_EQ(without.settings.find("max-restarts")->source, "environment DDPRUN_MAX_RESTARTS");
  EXPECT_EQ(without.settings.find("role")->source, "environment PET_ROLE");
  EXPECT_EQ(without.settings.find("shutdown-timeout")->source, "default");
  EXPECT_EQ(without.settings.find("run-dir"), nullptr);
}

TEST(Settings, TheLastRepeatWins) {
  EXPECT_EQ(parse_arguments(Words{"--role", "a", "--role=b", "x"}, variables({})).settings.text("role"), "b");
}

TEST(Settings, FlagsCount) {
  EXPECT_EQ(parse_arguments(Words{"-v", "--verbose", "-v", "x"}, variables({})).settings.integer("verbose", 0, 9), 3);
}

TEST(Settings, ValuesMayBeEmptyOrLookLikeAnything) {
  const Arguments arguments =
      parse_arguments(Words{"--rdzv-endpoint=", "--rdzv-conf=a=b,c=d", "--rdzv-id", "", "--role=[x,y]", "p"}, variables({}));
  EXPECT_EQ(arguments.settings.text("rdzv-endpoint"), "");
  EXPECT_EQ(arguments.settings.text("rdzv-conf"), "a=b,c=d");
  EXPECT_EQ(arguments.settings.text("rdzv-id"), "");
  EXPECT_EQ(arguments.settings.text("role"), "[x,y]");
  EXPECT_EQ(parse_arguments(Words{"--role=--json", "p"}, variables({})).settings.text("role"), "--json");
}

TEST(Settings, FlagsInTheEnvironmentAreNumbers) {
  EXPECT_FALSE(parse_arguments(Words{"x"}, variables({{"PET_STANDALONE", "0"}})).settings.flag("standalone"));
  EXPECT_TRUE(parse_arguments(Words{"x"}, variables({{"PET_STANDALONE", "1"}})).settings.flag("standalone"));
  EXPECT_EQ(error_of({"x"}, variables({{"PET_STANDALONE", "yes"}})),
            "--standalone: expected 0 or 1, but got 'yes' (environment PET_STANDALONE)");
}

TEST(Settings, TorchrunVariablesHaveLowestPrecedence) {
  const Environment environment = variables({{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"}});
  EXPECT_EQ(parse_arguments(Words{"x"}, environment).settings.number("shutdown-timeout", 0, 100), 7);
  EXPECT_EQ(parse_arguments(Words{"--shutdown-timeout=0.5", "x"}, environment).settings.number("shutdown-timeout", 0, 100),
            0.5);
}

TEST(Settings, NumbersAndWordsAreChecked) {
  EXPECT_EQ(error_of({"--max-restarts=3x", "x"}),
            "--max-restarts: expected a whole number, or auto, but got '3x' (flag --max-restarts)");
  EXPECT_EQ(error_of({"--shutdown-timeout=nan", "x"}),
            "--shutdown-timeout: expected a number, but got 'nan' (flag --shutdown-timeout)");
  EXPECT_EQ(error_of({"--numa-binding", "core", "x"}),
            "--numa-binding: expected node, socket, exclusive or core-complex, but got 'core' (flag --numa-binding)");
  EXPECT_EQ(error_of({"x"}, variables({{"PET_MASTER_PORT", "http"}})),
            "--master-port: expected a whole number, but got 'http' (environment PET_MASTER_PORT)");
  EXPECT_EQ(error_of({"--max-restarts=auto", "--start-method=fork", "x"}), "no error");
  const Arguments arguments = parse_arguments(Words{"--max-restarts", " +3 ", "x"}, variables({}));
  EXPECT_EQ(arguments.settings.integer("max-restarts", 0, 10), 3);
  EXPECT_THROW(arguments.settings.integer("max-restarts", 0, 2), UsageError);
}

TEST(Settings, CommandLineOverridesThePrefixVariable) {
  const Environment environment = variables({{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "v"}});
  EXPECT_EQ(parse_arguments(Words{"x"}, environment).settings.text("log-line-prefix-template"), "v");
  EXPECT_EQ(parse_arguments(Words{"--log-line-prefix-template=o", "x"}, environment).settings.text("log-line-prefix-template"),
            "o");
}

TEST(Settings, VariablesCannotRequestHelp) {
  const Environment environment =
      variables({{"PET_HELP", "1"}, {"DDPRUN_PRINT_COMPLETION", "bash"}, {"PET_TORCHRUN_HELP", "1"}});
  const Settings settings = parse_arguments(Words{"x"}, environment).settings;
  for (const char* name : {"help", "print-completion", "torchrun-help"}) EXPECT_EQ(settings.find(name), nullptr) << name;
}

std::string variable_name(std::string_view prefix, std::string_view option) {
  std::string name;
  make_variable_name(name, prefix, option);
  return name;
}

TEST(Settings, EveryTorchrunOptionHasAVariable) {
  for (const TorchrunRow& row : torchrun_options()) {
    const OptionSpec* option = find_option(row.name);
    ASSERT_NE(option, nullptr) << row.name;
    if (row.name == "help" || row.name == "print-completion") continue;
    const auto words = words_of(*option);
    const std::string value = option->type == OptionSpec::Type::kText && !words.empty() ? std::string(words.front())
                              : option->type == OptionSpec::Type::kWord                 ? std::string(words.front())
                                                                                        : "1";
    const Environment environment = variables({{variable_name("PET_", row.name), value}});
    const Settings settings = parse_arguments(Words{"x"}, environment).settings;
    EXPECT_EQ(settings.text(row.name), value);
    EXPECT_EQ(settings.find(row.name)->source, "environment " + variable_name("PET_", row.name));
  }
}

TEST(Help, AsTorchrunShowsOnlyTorchrunOptions) {
  const std::string text = help_text(CalledAs::kTorchrun);
  for (const OptionSpec& option : option_table()) {
    const bool shown = text.find("--" + std::string(option.name) + " ") != std::string::npos;
    EXPECT_EQ(shown, is_torchrun_option(option.name)) << option.name;
  }
}

void expect_columns(const std::string& text, std::size_t most) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    EXPECT_LE(end - begin, most) << text.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST(Help, FitsASmallScreen) {
  const std::string text = help_text(CalledAs::kDdprun);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 30);
  expect_columns(text, 80);
}

TEST(Help, HelpAllDescribesEveryOption) {
  const std::string text = long_help_text();
  const std::string page = man_page("1.2.3");
  for (const OptionSpec& option : option_table()) {
    EXPECT_NE(text.find(left_side(option) + "\n      "), std::string::npos) << option.name;
    EXPECT_FALSE(option.doc.empty()) << option.name;
    std::string name;
    for (const char c : "--" + std::string(option.name)) name += c == '-' ? std::string("\\-") : std::string(1, c);
    EXPECT_NE(page.find(name), std::string::npos) << option.name;
  }
  expect_columns(text, 80);
}

TEST(Normalise, OptionsMayFollowAConfigButNotAProgram) {
  const NormalisedArguments config = normalise(Words{"train.json", "--max-restarts", "2", "lr=1", "-q"});
  EXPECT_EQ(config.positional, (Words{"train.json", "lr=1"}));
  EXPECT_EQ(config.options, (Words{"--max-restarts=2", "--quiet"}));
  const NormalisedArguments script = normalise(Words{"-q", "train.py", "--max-restarts", "2"});
  EXPECT_EQ(script.positional, (Words{"train.py", "--max-restarts", "2"}));
  const NormalisedArguments rest = normalise(Words{"train.json", "--", "-q"});
  EXPECT_EQ(rest.positional, (Words{"train.json", "-q"}));
  for (const char* option : {"--no-python", "--run-path", "--module"}) {
    const NormalisedArguments program = normalise(Words{option, "./tool.json", "-q"});
    EXPECT_EQ(program.positional, (Words{"./tool.json", "-q"})) << option;
  }
}

TEST(OptionTable, VariablesAreNamedLikeTorchrun) {
  EXPECT_EQ(variable_name("PET_", "nproc-per-node"), "PET_NPROC_PER_NODE");
}

}  // namespace
}  // namespace ddprun
