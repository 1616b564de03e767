// What a command line is going to do. The machine is made up, files are in a temporary folder, nothing is started.
#include "launcher/plan.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <map>

#include "common/error.hpp"
#include "launcher/detect.hpp"
#include "launcher/dry_run.hpp"
#include "launcher/options.hpp"
#include "launcher/plan_network.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

class PlanTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string made = (fs::temp_directory_path() / "ddprun_plan_XXXXXX").string();
    ASSERT_NE(::mkdtemp(made.data()), nullptr);
    folder_ = made;
    write("train.json", R"({"name": "small", "batch_size": 8, "data": {"dir": "data"}})");
    write("train.py", "print()");
    write("tool.sh", "#!/bin/sh\n", 0755);
    write("plain", "no program", 0755);
    machine_ = {[this] { return cpus_; }, [this] { return gpus_; },
                [this](std::string_view name) -> std::optional<fs::path> {
                  const auto it = on_path_.find(std::string(name));
                  return it == on_path_.end() ? std::nullopt : std::optional<fs::path>(it->second);
                },
                [this](std::string_view name) -> std::optional<fs::path> {
                  return trainer_ && name == "ddptrain" ? std::optional<fs::path>("/opt/ddptrain") : std::nullopt;
                }};
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text, mode_t mode = 0644) {
    std::ofstream(folder_ / name) << text;
    ::chmod((folder_ / name).c_str(), mode);
  }

  Plan plan(const Words& args) {
    const Environment environment = [this](std::string_view name) -> std::optional<std::string> {
      const auto it = environment_.find(std::string(name));
      return it == environment_.end() ? std::nullopt : std::optional<std::string>(it->second);
    };
    return make_plan(parse_arguments(args, environment), machine_, environment, folder_);
  }

  std::string error_of(const Words& args) {
    try {
      plan(args);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  }

  static std::string source_of(const Plan& plan, const std::string& name) {
    for (const ValueSource& source : plan.sources) {
      if (source.name == name) return source.value + " from " + source.source;
    }
    return "not there";
  }

  fs::path folder_;
  int cpus_ = 6;
  int gpus_ = 0;
  bool trainer_ = true;
  std::map<std::string, std::string> on_path_{{"python3", "/usr/bin/python3"}, {"sh", "/bin/sh"}};
  std::map<std::string, std::string> environment_;
  Machine machine_;
};

TEST_F(PlanTest, AConfigStartsTheTrainer) {
  const Plan p = plan({"train.json"});
  const std::string run = (folder_ / "runs/small").string();
  EXPECT_EQ(p.kind, Plan::Kind::kTrain);
  EXPECT_EQ(p.command, (Words{"/opt/ddptrain", "--run-dir", run, "--resume", "auto", run + "/config.json"}));
  EXPECT_EQ(p.nproc_per_node, 1);
  EXPECT_EQ(p.max_restarts, 3);
  EXPECT_TRUE(p.refill_by_progress);
  EXPECT_EQ(p.master_port, 0);
  EXPECT_EQ(p.run_id, "small");
  EXPECT_EQ(p.device, "cpu");
}

TEST_F(PlanTest, OverridesComeAfterTheConfig) {
  EXPECT_EQ(plan({"train.json", "epochs=7"}).config->epochs, 7);
  EXPECT_EQ(error_of({"train.json", "--json"}),
            "'--json' comes after train.json: options go before it, key.path=value after it");
}

TEST_F(PlanTest, AScriptGetsAnInterpreterAndTorchrunsDefaults) {
  const Plan p = plan({"train.py", "--lr", "0.1"});
  EXPECT_EQ(p.kind, Plan::Kind::kPython);
  EXPECT_EQ(p.command, (Words{"/usr/bin/python3", "-u", "train.py", "--lr", "0.1"}));
  EXPECT_EQ(p.max_restarts, 0);
  EXPECT_FALSE(p.refill_by_progress);
  EXPECT_EQ(p.master_port, 29500);
  EXPECT_EQ(p.run_id, "none");
  EXPECT_TRUE(p.run_dir.empty());
}

TEST_F(PlanTest, ModulesAndPrograms) {
  EXPECT_EQ(plan({"-m", "pkg.train", "-m"}).command, (Words{"/usr/bin/python3", "-u", "-m", "pkg.train", "-m"}));
  EXPECT_EQ(plan({"./tool.sh", "a"}).command, (Words{(folder_ / "tool.sh").string(), "a"}));
  EXPECT_EQ(plan({"--no-python", "sh", "-c", ":"}).command, (Words{"/bin/sh", "-c", ":"}));
  EXPECT_EQ(plan({"--no-python", "./tool.sh", "train.json"}).kind, Plan::Kind::kProgram);
  EXPECT_EQ(plan({"plain"}).kind, Plan::Kind::kPython);  // executable, but neither ELF nor "#!"
}

TEST_F(PlanTest, MissingProgramsAreOneLine) {
  EXPECT_EQ(error_of({"other.py"}), "cannot read script other.py: No such file or directory");
  EXPECT_EQ(error_of({"sh"}),
            "cannot read script sh: No such file or directory. A program on PATH is started with --no-python");
  EXPECT_EQ(error_of({"--no-python", "nothing"}), "program nothing is not on PATH; a file in this folder is ./nothing");
  EXPECT_EQ(error_of({"--no-python", "./train.py"}), "program ./train.py is not executable; chmod +x ./train.py makes it so");
  EXPECT_NE(error_of({"-m", "--no-python", "x"}).find("exclude each other"), std::string::npos);
  EXPECT_NE(error_of({"--json"}).find("nothing to run"), std::string::npos);
  trainer_ = false;
  EXPECT_NE(error_of({"train.json"}).find("ddptrain was found neither beside ddprun nor on PATH"), std::string::npos);
}

TEST_F(PlanTest, TheInterpreterIsChosenInOrder) {
  const fs::path venv = folder_ / "venv";
  fs::create_directories(venv / "bin");
  write("venv/bin/python", "#!/bin/sh\n", 0755);
  environment_["VIRTUAL_ENV"] = venv;
  EXPECT_EQ(plan({"train.py"}).command.front(), (venv / "bin/python").string());
  environment_["PYTHON_EXEC"] = "/bin/sh";
  EXPECT_EQ(plan({"train.py"}).command.front(), "/bin/sh");
  environment_["PYTHON_EXEC"] = "/nowhere/python";
  EXPECT_EQ(error_of({"train.py"}), "PYTHON_EXEC=/nowhere/python: No such file or directory");
}

TEST_F(PlanTest, WorkersAreCounted) {
  EXPECT_EQ(plan({"--nproc-per-node", "cpu", "train.py"}).nproc_per_node, 6);
  EXPECT_EQ(plan({"--nproc-per-node", "auto", "train.py"}).nproc_per_node, 6);
  EXPECT_EQ(plan({"train.py"}).nproc_per_node, 1);
  EXPECT_NE(error_of({"--nproc-per-node", "gpu", "train.py"}).find("no GPU can be seen"), std::string::npos);
  gpus_ = 4;
  EXPECT_EQ(plan({"--nproc-per-node", "gpu", "train.py"}).nproc_per_node, 4);
  EXPECT_EQ(plan({"--nproc-per-node", "auto", "train.py"}).nproc_per_node, 4);
  EXPECT_EQ(plan({"train.py"}).nproc_per_node, 1);
  EXPECT_EQ(plan({"train.json"}).nproc_per_node, 4);
  EXPECT_EQ(plan({"train.json", "device=cpu"}).nproc_per_node, 1);
  EXPECT_EQ(error_of({"--nproc-per-node", "two", "train.py"}),
            "--nproc-per-node: expected a number of workers, auto, cpu or gpu, but got 'two' (flag --nproc-per-node)");
  EXPECT_NE(error_of({"--nproc-per-node", "0", "train.py"}).find("from 1 to"), std::string::npos);
}

TEST_F(PlanTest, TooManyWorkersAreRefusedWithBothCounts) {
  gpus_ = 2;
  const std::string gpus = error_of({"--nproc-per-node", "3", "train.json", "device=cuda"});
  EXPECT_NE(gpus.find("3 workers"), std::string::npos) << gpus;
  EXPECT_NE(gpus.find("and 2 can be seen"), std::string::npos) << gpus;
  const std::string batch = error_of({"--nproc-per-node", "9", "train.json", "device=cpu"});
  EXPECT_NE(batch.find("batch_size 8 is smaller than the number of workers, 9"), std::string::npos) << batch;
}

TEST_F(PlanTest, Restarts) {
  EXPECT_FALSE(plan({"--max-restarts", "5", "train.json"}).refill_by_progress);
  EXPECT_EQ(plan({"--max-restarts", "5", "train.json"}).max_restarts, 5);
  EXPECT_TRUE(plan({"--max-restarts", "auto", "train.py"}).refill_by_progress);
  EXPECT_EQ(plan({"--max-restarts", "auto", "train.py"}).max_restarts, 3);
  EXPECT_NE(error_of({"--max-restarts", "-1", "train.py"}).find("from 0"), std::string::npos);
}

TEST_F(PlanTest, Stopping) {
  EXPECT_EQ(plan({"--shutdown-timeout", "0.25", "train.py"}).shutdown_timeout.count(), 250);
  EXPECT_EQ(plan({"train.py"}).shutdown_timeout.count(), 30000);
  EXPECT_EQ(plan({"train.py"}).signals_to_handle, (std::vector<int>{SIGTERM, SIGINT, SIGHUP, SIGQUIT}));
  EXPECT_EQ(plan({"--signals-to-handle", "SIGUSR1, TERM", "train.py"}).signals_to_handle, (std::vector<int>{SIGUSR1, SIGTERM}));
  EXPECT_NE(error_of({"--signals-to-handle", "SIGKILL", "train.py"}).find("not 'SIGKILL'"), std::string::npos);
}

TEST_F(PlanTest, Resuming) {
  EXPECT_EQ(plan({"--resume", "never", "train.json"}).resume, Plan::Resume::kNever);
  const Plan p = plan({"--resume", "train.py", "train.json"});  // any path that exists; the worker checks what it is
  EXPECT_EQ(p.resume_from, folder_ / "train.py");
  EXPECT_EQ(p.command.at(4), (folder_ / "train.py").string());
  EXPECT_NE(error_of({"--resume", "nowhere", "train.json"}).find("a checkpoint that exists"), std::string::npos);
  EXPECT_NE(error_of({"--fresh", "--run-dir", ".", "--resume", "train.py", "train.json"}).find("inside it"), std::string::npos);
  EXPECT_NE(error_of({"--fresh", "train.py"}).find("goes with a train.json"), std::string::npos);
}

TEST_F(PlanTest, RunDirectoryIsAbsolute) {
  EXPECT_EQ(plan({"--run-dir", "a/../b/", "train.json"}).run_dir, folder_ / "b");
  EXPECT_EQ(plan({"--run-dir", "/x/y", "train.py"}).run_dir, "/x/y");
}

TEST_F(PlanTest, OneNodeOnly) {
  EXPECT_EQ(plan({"--nnodes", "1:1", "train.py"}).nproc_per_node, 1);
  EXPECT_EQ(
      error_of({"--nnodes", "2", "train.py"}),
      "jobs on many machines are not in this version: --nnodes is 2 (flag --nnodes); run it on one machine with --nnodes 1");
  EXPECT_NE(error_of({"--nnodes", "1:4", "train.py"}).find("not in this version"), std::string::npos);
  EXPECT_NE(error_of({"--nnodes", "2:1", "train.py"}).find("MIN <= MAX"), std::string::npos);
  EXPECT_NE(error_of({"--nnodes", "x", "train.py"}).find("N or MIN:MAX"), std::string::npos);
  EXPECT_NE(error_of({"--node-rank", "1", "train.py"}).find("expected 0"), std::string::npos);
}

TEST_F(PlanTest, AddressesAreTorchruns) {
  EXPECT_EQ(plan({"--master-port", "1234", "train.py"}).master_port, 1234);
  const Plan endpoint = plan({"--master-port", "1234", "--rdzv-endpoint", "host:77", "train.py"});
  EXPECT_EQ(endpoint.master_port, 77);  // the endpoint beats --master-port under static
  EXPECT_EQ(endpoint.master_addr, "host");
  const Plan c10d = plan({"--rdzv-backend", "c10d", "--rdzv-endpoint", "host:77", "--rdzv-id", "job", "train.py"});
  EXPECT_EQ(c10d.master_port, 0);
  EXPECT_EQ(c10d.run_id, "job");
  const Plan standalone = plan({"--standalone", "--rdzv-id", "job", "--rdzv-endpoint", "host:77", "train.py"});
  EXPECT_EQ(standalone.master_port, 0);
  EXPECT_EQ(standalone.master_addr, "127.0.0.1");
  EXPECT_NE(standalone.run_id, "job");
  EXPECT_EQ(plan({"--rdzv-endpoint", "[::1]:9", "train.py"}).master_addr, "::1");
  EXPECT_NE(error_of({"--rdzv-endpoint", "host:port", "train.py"}).find("HOST[:PORT]"), std::string::npos);
  EXPECT_NE(error_of({"--rdzv-backend", "etcd", "train.py"}).find("static or c10d"), std::string::npos);
}

TEST(RdzvConf, TorchrunsRules) {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(parse_rdzv_conf({"'join_timeout=5, timeout = 6'", "x"}), (Pairs{{"join_timeout", "5"}, {"timeout", "6"}}));
  EXPECT_EQ(parse_rdzv_conf({"a=b=c", "x"}), (Pairs{{"a", "b=c"}}));
  EXPECT_EQ(parse_rdzv_conf({"", "x"}), Pairs{});
  for (const char* bad : {"a=1,", "a=1,,b=2", "=1", "a=", "a"}) EXPECT_THROW(parse_rdzv_conf({bad, "x"}), UsageError) << bad;
}

TEST_F(PlanTest, WithoutEffectIsSaid) {
  EXPECT_EQ(plan({"--start-method", "fork", "train.py"}).notes.size(), 1u);
  EXPECT_EQ(plan({"--rdzv-conf", "join_timeot=3", "train.py"}).notes.at(0),
            "--rdzv-conf: unknown key 'join_timeot' has no effect. Did you mean 'join_timeout'?");
}

TEST_F(PlanTest, EveryValueHasASource) {
  environment_ = {{"DDPRUN_MAX_RESTARTS", "2"}, {"PET_ROLE", "trainer"}};
  const Plan p = plan({"--nproc-per-node", "2", "train.json"});
  EXPECT_EQ(source_of(p, "nproc_per_node"), "2 from flag --nproc-per-node");
  EXPECT_EQ(source_of(p, "max_restarts"), "2 from environment DDPRUN_MAX_RESTARTS");
  EXPECT_EQ(source_of(p, "role"), "trainer from environment PET_ROLE");
  EXPECT_EQ(source_of(p, "shutdown_timeout"), "30 s from default");
  EXPECT_EQ(source_of(p, "master_port"), "a free one from default");
}

TEST_F(PlanTest, DryRunTellsAllOfIt) {
  const Plan p = plan({"--nproc-per-node", "2", "train.py", "a b"});
  const std::string text = dry_run_text(p, environment_of_rank_0(p, {"HOME=/h", "RANK=9"}));
  for (const char* part : {"start 2 workers", "/usr/bin/python3 -u train.py 'a b'", "  RANK=0\n", "  WORLD_SIZE=2\n",
                           "  MASTER_PORT=29500\n", "(flag --nproc-per-node)"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
  EXPECT_EQ(text.find("HOME"), std::string::npos);
}

TEST(Shell, QuotesWhatNeedsIt) {
  EXPECT_EQ(shell_quoted("a/b-c=1"), "a/b-c=1");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("it's $x"), "'it'\\''s $x'");
}

}  // namespace
}  // namespace ddprun
