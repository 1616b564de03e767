// Tests the plan for a command line. The machine is simulated, files are in a temporary folder, and no process is started.
#include "launcher/plan/plan.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "common/base/error.hpp"
#include "common/custom_worker/description.hpp"
#include "launcher/commands/dry_run.hpp"
#include "launcher/machine/detect.hpp"
#include "launcher/options/options.hpp"
#include "launcher/options/shell_quoted.hpp"
#include "launcher/plan/plan_output.hpp"
#include "launcher/plan/plan_rendezvous.hpp"
#include "launcher/plan/torchrun_name.hpp"

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
    machine_.output_of_program = [this](const std::vector<std::string>& command) {
      commands_run_.push_back(command);
      return ProgramOutput{.text = description_, .error_output = {}};
    };
    machine_.gpu_nodes = [this] { return gpus_; };
    machine_.topology = [](const std::vector<std::string>&) { return Topology{{{}, {.id = 1, .core = 1}}, {}}; };
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text, mode_t mode = 0644) {
    std::ofstream(folder_ / name) << text;
    ::chmod((folder_ / name).c_str(), mode);
  }

  Plan plan(const Words& args, CalledAs called_as = CalledAs::kDdprun, const fs::path& called_from = {}) {
    const Environment environment = [this](std::string_view name) -> std::optional<std::string> {
      const auto it = environment_.find(std::string(name));
      return it == environment_.end() ? std::nullopt : std::optional<std::string>(it->second);
    };
    Arguments arguments = parse_arguments(args, environment);
    arguments.called_as = called_as;
    arguments.called_from = called_from;
    return make_plan(arguments, machine_, environment, folder_);
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
  std::string description_ = description_json({.name = "tool",
                                               .version = "3",
                                               .ddprun = "0.1.0",
                                               .libtorch = "2.11.0",
                                               .channel_major = 1,
                                               .keys = {{.name = "width", .value = 8, .help = "Width."}}});
  std::vector<std::vector<std::string>> commands_run_;
  Machine machine_;
};

TEST_F(PlanTest, AConfigStartsTheTrainer) {
  const Plan p = plan({"train.json"});
  const std::string run = (folder_ / "runs/small").string();
  EXPECT_EQ(p.kind, Plan::Kind::kTrain);
  EXPECT_EQ(p.command, (Words{"/opt/ddptrain", "--run-dir", run, "--resume", "auto", run + "/config.json"}));
  EXPECT_EQ(plan({"--fresh", "train.json"}).command[4], "never");  // also excludes a copy on a node's local disk
  EXPECT_EQ(p.nproc_per_node, 1);
  EXPECT_EQ(p.max_restarts, 3);
  EXPECT_TRUE(p.refill_by_progress);
  EXPECT_TRUE(restart_limits(p).preempted_has_saved);
  EXPECT_EQ(p.master_port, 0);
  EXPECT_EQ(p.run_id, "small");
  EXPECT_EQ(p.device, "cpu");
}

TEST_F(PlanTest, OverridesComeAfterTheConfig) {
  EXPECT_EQ(plan({"train.json", "epochs=7"}).config->epochs, 7);
  EXPECT_EQ(error_of({"train.json", "--", "--json"}),
            "'--json' comes after train.json: expected options before it and key.path=value after it");
}

TEST_F(PlanTest, AScriptGetsAnInterpreterAndTorchrunsDefaults) {
  const Plan p = plan({"train.py", "--lr", "0.1"});
  EXPECT_EQ(p.kind, Plan::Kind::kPython);
  EXPECT_EQ(p.command, (Words{"/usr/bin/python3", "-u", "train.py", "--lr", "0.1"}));
  EXPECT_EQ(p.max_restarts, 0);
  EXPECT_FALSE(p.refill_by_progress);
  EXPECT_FALSE(restart_limits(p).preempted_has_saved) << "a script may exit with any code";
  EXPECT_EQ(p.master_port, 29500);
  EXPECT_EQ(p.master_port_need, PortNeed::kIfFree);
  EXPECT_EQ(p.run_id, "none");
  EXPECT_TRUE(p.run_dir.empty());
}

TEST_F(PlanTest, ModulesAndPrograms) {
  EXPECT_EQ(plan({"-m", "pkg.train", "-m"}).command, (Words{"/usr/bin/python3", "-u", "-m", "pkg.train", "-m"}));
  EXPECT_EQ(plan({"./tool.sh", "a"}).command, (Words{(folder_ / "tool.sh").string(), "a"}));
  EXPECT_EQ(plan({"--no-python", "sh", "-c", ":"}).command, (Words{"/bin/sh", "-c", ":"}));
  EXPECT_EQ(plan({"--no-python", "./tool.sh", "train.json"}).kind, Plan::Kind::kProgram);
  EXPECT_EQ(plan({"plain"}).kind, Plan::Kind::kPython);  // the file is executable, but has neither an ELF header nor "#!"
}

TEST_F(PlanTest, ACustomWorkerReplacesDdptrain) {
  trainer_ = false;
  Plan p = plan({"--worker", "./tool.sh", "train.json"});
  const std::string run = (folder_ / "runs/small").string();
  const std::string tool = (folder_ / "tool.sh").string();
  EXPECT_EQ(p.command, (Words{tool, "--run-dir", run, "--resume", "auto", run + "/config.json"}));
  EXPECT_EQ(source_of(p, "worker"), tool + " from flag --worker");
  on_path_["mytrain"] = "/usr/bin/mytrain";
  EXPECT_EQ(plan({"--worker=mytrain", "train.json"}).command.front(), "/usr/bin/mytrain");
  environment_["DDPRUN_WORKER"] = tool;
  EXPECT_EQ(plan({"train.json"}).command.front(), tool);
  environment_.clear();
  for (const auto& [worker, expected] : {std::pair{"nothing", "its name on PATH; for a file in this folder use ./nothing"},
                                         std::pair{"./nothing", "the path of an existing program"},
                                         std::pair{"./train.py", "make it executable with chmod +x"}}) {
    EXPECT_NE(error_of({"--worker", worker, "train.json"}).find(expected), std::string::npos)
        << error_of({"--worker", worker, "train.json"});
  }
  EXPECT_NE(error_of({"--worker", "./tool.sh", "train.py"})
                .find("no value together with a script, since --worker is for a train.json"),
            std::string::npos);
}

TEST_F(PlanTest, TheConfigMayNameTheWorker) {
  fs::create_directories(folder_ / "deep");
  write("deep/train.json", R"({"worker": "../tool.sh", "data": {"dir": "d"}, "task": {"width": 16}})");
  const std::string tool = (folder_ / "tool.sh").string();
  const Plan p = plan({"deep/train.json"});
  EXPECT_EQ(p.command.front(), tool) << "relative to the config";
  EXPECT_EQ(source_of(p, "worker"), tool + " from \"worker\" of the config");
  EXPECT_EQ(source_of(p, "worker_is"), "tool 3 from its --describe: 1 key added by it, LibTorch 2.11.0");
  EXPECT_EQ(p.config->task.integer("width"), 16);
  EXPECT_EQ(commands_run_, (std::vector<Words>{{tool, "--describe"}})) << "once";
  write("other.sh", "#!/bin/sh\n", 0755);
  EXPECT_EQ(plan({"--worker", "./other.sh", "deep/train.json", "task.width=4"}).command.front(),
            (folder_ / "other.sh").string());
  EXPECT_EQ(plan({"deep/train.json", "task.width=4", "worker=../other.sh"}).config->task.integer("width"), 4);
  EXPECT_EQ(commands_run_.back().front(), (folder_ / "other.sh").string());
  EXPECT_NE(error_of({"deep/train.json", "task.widht=4"}).find("unknown key 'widht' (/task/widht). Did you mean 'width'?"),
            std::string::npos);
  EXPECT_NE(error_of({"train.json", "task.width=4"}).find("unknown key 'task' (/task). Only a custom worker program"),
            std::string::npos);
  description_ = "usage: tool FILE";
  EXPECT_EQ(
      error_of({"--worker", "./tool.sh", "train.json"}),
      "worker './tool.sh' (flag --worker): the command " + tool +
          " --describe failed: expected a JSON object, found 'usage: tool FILE'. A worker program must be built with ddprun's "
          "library; see docs/own-worker.md");
  description_ = R"({"format": 1, "name": "t", "version": "", "ddprun": "9", "libtorch": "3", "channel_major": 2,
                     "channel_minor": 0, "keys": []})";
  EXPECT_NE(error_of({"--worker", "./tool.sh", "train.json"}).find("a program with version 1 of the worker channel, found 2"),
            std::string::npos);
}

TEST_F(PlanTest, MissingProgramsAreOneLineErrors) {
  EXPECT_EQ(error_of({"other.py"}), "cannot read script other.py: No such file or directory");
  EXPECT_EQ(error_of({"sh"}), "cannot read script sh: No such file or directory. Use --no-python to start a program on PATH");
  EXPECT_EQ(error_of({"--no-python", "nothing"}), "program nothing is not on PATH; for a file in this folder use ./nothing");
  EXPECT_EQ(error_of({"--no-python", "./train.py"}),
            "program ./train.py is not executable; chmod +x ./train.py makes it executable");
  EXPECT_NE(error_of({"-m", "--no-python", "x"}).find("cannot be combined"), std::string::npos);
  EXPECT_NE(error_of({"--json"}).find("nothing to run"), std::string::npos);
  trainer_ = false;
  EXPECT_NE(error_of({"train.json"}).find("ddptrain was found neither next to ddprun nor on PATH"), std::string::npos);
}

TEST_F(PlanTest, ASimilarSubcommandIsSuggested) {
  const std::string stands = "must be the first argument: ddprun ";
  EXPECT_EQ(error_of({"valdate", "t.json"}),
            "cannot read script valdate: No such file or directory. Did you mean the subcommand 'validate'? It " + stands +
                "validate ...");
  EXPECT_EQ(error_of({"--json", "validate", "t.json"}),
            "cannot read script validate: No such file or directory. A subcommand " + stands + "validate ...");
  EXPECT_EQ(error_of({"help"}), "cannot read script help: No such file or directory. A subcommand " + stands + "help ...");
  EXPECT_EQ(error_of({"./valdate"}), "cannot read script ./valdate: No such file or directory");
  EXPECT_EQ(error_of({"something"}), "cannot read script something: No such file or directory");
}

TEST_F(PlanTest, AConfigWithAnotherSuffixIsNotAScript) {
  const std::string refusal =
      " contains a JSON object, but the name of a config must end in .json: rename it, or start it as a Python script with "
      "--run-path";
  write("T.JSON", "\xEF\xBB\xBF\n {\"a\": true, // why\n \"b\": {}}\n");
  EXPECT_EQ(error_of({"T.JSON"}), "T.JSON" + refusal);
  EXPECT_EQ(plan({"--run-path", "T.JSON"}).kind, Plan::Kind::kPython);
  write("braces", "{1: 2}\n");
  EXPECT_EQ(plan({"braces"}).kind, Plan::Kind::kPython);
  write("list", "[1]\n");
  EXPECT_EQ(plan({"list"}).kind, Plan::Kind::kPython);
  write("object.py", "{}\n");
  EXPECT_EQ(plan({"object.py"}).kind, Plan::Kind::kPython);
}

TEST_F(PlanTest, OutOfRangeNumbersAreRefused) {
  const std::string many(20, '9');
  EXPECT_EQ(error_of({"--nproc-per-node", many, "train.py"}),
            "--nproc-per-node: expected a whole number from 1 to 4096, but got '" + many + "' (flag --nproc-per-node)");
  EXPECT_EQ(error_of({"--max-restarts", "-" + many, "train.py"}),
            "--max-restarts: expected a whole number from 0 to 1000000, but got '-" + many + "' (flag --max-restarts)");
  EXPECT_EQ(error_of({"--shutdown-timeout", "1e400", "train.py"}),
            "--shutdown-timeout: expected a number from 0 to 1e+06, but got '1e400' (flag --shutdown-timeout)");
  EXPECT_NE(error_of({"--nproc-per-node", many + "x", "train.py"}).find("expected a number of workers, auto"),
            std::string::npos);
}

TEST_F(PlanTest, TheInterpreterIsChosenInOrder) {
  const fs::path venv = folder_ / "venv";
  fs::create_directories(venv / "bin");
  write("venv/bin/python", "#!/bin/sh\n", 0755);
  fs::create_directories(folder_ / "conda/bin");
  write("conda/bin/python", "#!/bin/sh\n", 0755);
  environment_["CONDA_PREFIX"] = folder_ / "conda";
  EXPECT_EQ(plan({"train.py"}).command.front(), (folder_ / "conda/bin/python").string());
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
  EXPECT_NE(error_of({"--nproc-per-node", "gpu", "train.py"}).find("no GPU is visible"), std::string::npos);
  gpus_ = 4;
  EXPECT_EQ(plan({"--nproc-per-node", "gpu", "train.py"}).nproc_per_node, 4);
  EXPECT_EQ(plan({"--nproc-per-node", "auto", "train.py"}).nproc_per_node, 4);
  EXPECT_EQ(plan({"train.py"}).nproc_per_node, 1);
  EXPECT_EQ(plan({"train.json"}).nproc_per_node, 4);
  EXPECT_EQ(plan({"train.json", "device=cpu"}).nproc_per_node, 1);
  EXPECT_EQ(error_of({"--nproc-per-node", "two", "train.py"}),
            "--nproc-per-node: expected a number of workers, auto, cpu, gpu or xpu, but got 'two' (flag --nproc-per-node)");
  EXPECT_NE(error_of({"--nproc-per-node", "0", "train.py"}).find("from 1 to"), std::string::npos);
}

TEST_F(PlanTest, IdleGpusOfAScriptAreMentioned) {
  gpus_ = 8;
  EXPECT_EQ(plan({"train.py"}).warnings,
            Words{"1 worker is started, but 8 GPUs are visible: --nproc-per-node gpu starts one worker for each GPU"});
  EXPECT_EQ(plan({"--nproc-per-node", "1", "train.py"}).warnings, Words{});
  EXPECT_EQ(plan({"./tool.sh"}).warnings, Words{});
  EXPECT_EQ(plan({"train.json"}).warnings, Words{});
  gpus_ = 1;
  EXPECT_EQ(plan({"train.py"}).warnings, Words{});
}

// With --worker-per-gpu, a worker must not train on the CPU without a message.
TEST_F(PlanTest, WorkersOfGpusGetTheGpuFlag) {
  const auto has_flag = [this](const Words& args) {
    const std::vector<std::string> command = plan(args).command;
    return std::find(command.begin(), command.end(), "--worker-per-gpu") != command.end();
  };
  EXPECT_FALSE(has_flag({"train.json"}));
  gpus_ = 2;
  EXPECT_TRUE(has_flag({"train.json"}));
  EXPECT_TRUE(has_flag({"--nproc-per-node", "gpu", "train.json"}));
  EXPECT_TRUE(has_flag({"--nproc-per-node", "auto", "train.json"}));
  EXPECT_FALSE(has_flag({"--nproc-per-node", "2", "train.json"}));
  EXPECT_FALSE(has_flag({"--nproc-per-node", "gpu", "train.json", "device=cpu"}));
}

TEST_F(PlanTest, TooManyWorkersAreRefusedWithBothCounts) {
  gpus_ = 2;
  const std::string gpus = error_of({"--nproc-per-node", "3", "train.json", "device=cuda"});
  EXPECT_NE(gpus.find("3 workers"), std::string::npos) << gpus;
  EXPECT_NE(gpus.find("the number of visible GPUs is 2"), std::string::npos) << gpus;
  environment_["DDPTRAIN_SHARE_GPU"] = "1";
  EXPECT_EQ(plan({"--nproc-per-node", "3", "train.json", "device=cuda"}).nproc_per_node, 3);
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
  const Words argv = plan({"--data-changed", "train.json"}).command;
  EXPECT_NE(std::find(argv.begin(), argv.end(), "--data-changed"), argv.end());
  const Plan p = plan({"--resume", "train.py", "train.json"});  // ddprun accepts any path; the worker checks the content
  EXPECT_EQ(p.resume_from, folder_ / "train.py");
  EXPECT_EQ(p.command.at(4), (folder_ / "train.py").string());
  EXPECT_NE(error_of({"--resume", "nowhere", "train.json"}).find("the path of an existing checkpoint"), std::string::npos);
  // On several nodes, the path may exist only on another node.
  EXPECT_EQ(plan({"--nnodes", "2", "--resume", "nowhere", "train.json"}).resume_from, folder_ / "nowhere");
  EXPECT_NE(error_of({"--fresh", "--run-dir", ".", "--resume", "train.py", "train.json"}).find("inside it"), std::string::npos);
  EXPECT_NE(error_of({"--fresh", "train.py"}).find("requires a train.json"), std::string::npos);
}

// In a job that runs a script, the agents use MASTER_PORT for their rendezvous and then leave that port to rank 0. Workers of
// a train.json need no port that is known in advance, so their master_port is 0.
TEST_F(PlanTest, ChoosesTheMeetingPoint) {
  const Plan script = plan({"--nnodes", "2", "--master-addr", "10.0.0.1", "train.py"});
  EXPECT_EQ(script.rendezvous.host, "10.0.0.1");
  EXPECT_EQ(script.rendezvous.port, 29500);
  EXPECT_EQ(script.master_port, 29500);
  const Plan train = plan({"--nnodes", "2", "--master-addr", "10.0.0.1", "train.json"});
  EXPECT_EQ(train.rendezvous.port, 29400);
  EXPECT_EQ(train.master_port, 0);
  EXPECT_EQ(plan({"--nnodes", "2", "--master-addr", "a", "--master-port", "7", "train.json"}).rendezvous.port, 7);
  EXPECT_EQ(plan({"--nnodes", "2", "train.py"}).rendezvous.host, "");  // "" stands for this machine, or for the default address
}

TEST_F(PlanTest, ChoosesTheHostOfTheScriptStore) {
  EXPECT_TRUE(plan({"train.py"}).agent_store);
  EXPECT_FALSE(plan({"train.json"}).agent_store);
  EXPECT_FALSE(plan({"--agent-store", "off", "train.py"}).agent_store);
  EXPECT_EQ(plan({"--agent-store", "off", "train.json"}).notes,
            Words{"--agent-store has no effect with a train.json, whose workers reach the store through ddprun"});
  environment_["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1";
  EXPECT_EQ(source_of(plan({"train.py"}), "agent_store"),
            "off: rank 0 hosts the store from environment TORCH_DISABLE_SHARE_RDZV_TCP_STORE");
  EXPECT_TRUE(plan({"--agent-store", "on", "train.py"}).agent_store);
  environment_["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "true";  // no effect, because PyTorch accepts only the value 1
  EXPECT_TRUE(plan({"train.py"}).agent_store);
}

TEST_F(PlanTest, RunDirectoryIsAbsolute) {
  EXPECT_EQ(plan({"--run-dir", "a/../b/", "train.json"}).run_dir, folder_ / "b");
  EXPECT_EQ(plan({"--run-dir", "/x/y", "train.py"}).run_dir, "/x/y");
}

TEST_F(PlanTest, ParsesNodeRanges) {
  EXPECT_FALSE(plan({"--nnodes", "1:1", "train.py"}).rendezvous.many());
  EXPECT_TRUE(plan({"--nnodes", "2", "train.py"}).rendezvous.many());
  EXPECT_TRUE(plan({"--nnodes", "1:4", "train.py"}).rendezvous.many());
  EXPECT_NE(error_of({"--nnodes", "2:1", "train.py"}).find("MIN <= MAX"), std::string::npos);
  EXPECT_NE(error_of({"--nnodes", "x", "train.py"}).find("N or MIN:MAX"), std::string::npos);
  EXPECT_NE(error_of({"--node-rank", "1", "train.py"}).find("expected 0"), std::string::npos);
}

TEST_F(PlanTest, APortRangeMustHaveAPortForEachListener) {
  struct Row {
    Words options;
    std::string problem;  // a part of the message; "no error" if the range is accepted
  };
  const std::string form = "--port-range: expected LOW-HIGH with at least 4 ports from 1 to 65535, such as 29500-29599";
  const std::vector<Row> rows{
      {{"--port-range", "31000-31003", "train.json"}, "no error"},
      {{"--port-range", "31000-31003", "train.py"}, "no error"},
      {{"--port-range", "31000", "train.py"}, form},
      {{"--port-range", "31003-31000", "train.py"}, form},
      {{"--port-range", "31000-31002", "train.py"}, form},
      {{"--port-range", "0-10", "train.py"}, form},
      {{"--port-range", "65533-65536", "train.py"}, form},
      {{"--port-range", "a-b", "train.py"}, form},
      {{"--port-range", "31000-31004", "--nproc-per-node", "3", "train.json"}, "no error"},
      {{"--port-range", "31000-31004", "--nproc-per-node", "4", "train.json"},
       "--port-range 31000-31004 has 5 ports, but this node needs at least 6: 2 for the agent, and one for each worker (4)"},
      {{"--port-range", "31000-31003", "--nproc-per-node", "9", "train.py"}, "no error"},
      {{"--port-range", "31000-31004", "--nnodes", "2", "--master-addr", "h", "train.json"}, "no error"},
      {{"--port-range", "31000-31003", "--nnodes", "2", "--master-addr", "h", "train.json"},
       "needs at least 5: 4 for the agent, and one for each worker (1); give a larger range"},
  };
  for (const Row& row : rows) {
    const std::string problem = error_of(row.options);
    EXPECT_NE(problem.find(row.problem), std::string::npos) << row.options[1] << ": " << problem;
  }
  const auto warnings = [this](const Words& options) {
    Words words{"--port-range", "31000-31009"};
    words.insert(words.end(), options.begin(), options.end());
    words.emplace_back("train.py");
    return plan(words).warnings;
  };
  EXPECT_TRUE(warnings({}).empty());
  EXPECT_TRUE(warnings({"--master-port", "31000", "--metrics-port", "31009"}).empty());
  EXPECT_EQ(warnings({"--metrics-port", "31010"}), Words{"the requested port 31010 is outside --port-range 31000-31009"});
  EXPECT_EQ(warnings({"--master-port", "30999"}), Words{"the requested port 30999 is outside --port-range 31000-31009"});
}

TEST_F(PlanTest, FailingNodesCanOnlyBeExcludedFromARangeOfNodes) {
  const Plan elastic = plan({"--nnodes", "2:4", "--master-addr", "h", "--exclude-failing-nodes", "train.py"});
  EXPECT_TRUE(elastic.rendezvous.exclude_failing_nodes);
  EXPECT_TRUE(elastic.warnings.empty());
  EXPECT_EQ(source_of(elastic, "exclude_failing_nodes"), "1 from flag --exclude-failing-nodes");
  const Plan fixed = plan({"--nnodes", "2", "--master-addr", "h", "--exclude-failing-nodes", "train.py"});
  EXPECT_EQ(fixed.warnings,
            Words{"--exclude-failing-nodes has no effect: the job needs all of its nodes; use --nnodes MIN:MAX"});
  EXPECT_FALSE(plan({"--nnodes", "2:4", "--master-addr", "h", "train.py"}).rendezvous.exclude_failing_nodes);
}

TEST_F(PlanTest, AddressesMatchTorchrun) {
  EXPECT_EQ(plan({"--master-port", "1234", "train.py"}).master_port, 1234);
  EXPECT_EQ(plan({"--master-port", "1234", "train.py"}).master_port_need, PortNeed::kExactly);
  // Other nodes connect to this port, so the agent must not choose another port.
  EXPECT_EQ(plan({"--nnodes", "2", "--master-addr", "a", "train.py"}).master_port_need, PortNeed::kExactly);
  const Plan endpoint = plan({"--master-port", "1234", "--rdzv-endpoint", "host:77", "train.py"});
  EXPECT_EQ(endpoint.master_port, 77);  // with the static backend, the endpoint replaces --master-port
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

TEST_F(PlanTest, TheDynamicBackendTakesNeitherMasterAddressNorPort) {
  const Plan p =
      plan({"--rdzv-backend", "c10d", "--master-addr", "host", "--master-port", "1234", "--node-rank", "3", "train.py"});
  EXPECT_EQ(p.master_addr, "127.0.0.1");
  EXPECT_EQ(p.master_port, 0);
  EXPECT_EQ(p.notes.size(), 2u);
  EXPECT_EQ(plan({"--standalone", "--local-addr", "10.0.0.1", "train.py"}).master_addr, "10.0.0.1");
  EXPECT_EQ(plan({"--local-addr", "10.0.0.1", "train.py"}).master_addr, "127.0.0.1");
  EXPECT_EQ(plan({"--master-addr", "[::1]", "train.py"}).master_addr, "::1");
  EXPECT_EQ(plan({"--standalone", "--nnodes", "1:4", "train.py"}).nproc_per_node, 1);
  EXPECT_NE(error_of({"--standalone", "--nnodes", "2", "train.py"}).find("remove one of the two options"), std::string::npos);
  EXPECT_NE(error_of({"--rdzv-backend", "etcd-v2", "train.py"}).find("use --rdzv-backend c10d"), std::string::npos);
  EXPECT_NE(error_of({"--nnodes", "0", "train.py"}).find("1 <= MIN <= MAX"), std::string::npos);
}

TEST_F(PlanTest, ATorchrunLogClassIsReported) {
  EXPECT_EQ(plan({"--logs-specs", "mine", "train.py"}).warnings.size(), 1u);
  EXPECT_TRUE(plan({"--logs-specs", "default", "train.py"}).warnings.empty());
}

TEST_F(PlanTest, OnlyASingleForegroundWorkerGetsTheTerminal) {
  const auto input = [&](const Words& args) { return plan(args).input; };
  // All workers share the standard input of ddprun, which is a file or a pipe, as under torchrun.
  EXPECT_EQ(input({"--nproc-per-node", "2", "train.py"}), WorkersInput::kOurs);
  EXPECT_EQ(input({"train.json"}), WorkersInput::kNothing);
  machine_.standard_input = [] { return StandardInput{.terminal = true, .in_foreground = true}; };
  EXPECT_EQ(input({"train.py"}), WorkersInput::kOurs);
  EXPECT_EQ(input({"--nproc-per-node", "2", "train.py"}), WorkersInput::kTerminalIsKept);
  EXPECT_EQ(input({"train.json"}), WorkersInput::kNothing);
  machine_.standard_input = [] { return StandardInput{.terminal = true, .in_foreground = false}; };
  EXPECT_EQ(input({"train.py"}), WorkersInput::kTerminalIsKept);
}

class RendezvousTest : public testing::Test {
 protected:
  static RendezvousChoice choice(const Words& args) {
    Words with_program = args;
    with_program.emplace_back("x");
    const Environment environment = [](std::string_view) { return std::nullopt; };
    return resolve_rendezvous(parse_arguments(with_program, environment).settings);
  }
  static RendezvousPlan plan(const Words& args) { return choice(args).plan; }
  static std::string error_of(const Words& args) {
    try {
      plan(args);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_F(RendezvousTest, ParsesNodeCounts) {
  EXPECT_EQ(plan({}).max_nodes, 1);
  EXPECT_EQ(plan({"--nnodes", "2:8"}).min_nodes, 2);
  EXPECT_EQ(plan({"--nnodes", "2:8"}).max_nodes, 8);
  EXPECT_FALSE(plan({"--nnodes", "2"}).node_rank);
  EXPECT_EQ(plan({"--nnodes", "2", "--node-rank", "1"}).node_rank, 1);
  EXPECT_NE(error_of({"--nnodes", "2", "--node-rank", "2"}).find("from 0 to 1"), std::string::npos);
  EXPECT_FALSE(plan({"--rdzv-backend", "c10d", "--nnodes", "2", "--node-rank", "7"}).node_rank);
}

TEST_F(RendezvousTest, Endpoints) {
  const auto place = [](const Words& args) { return plan(args).host + " " + std::to_string(plan(args).port); };
  EXPECT_EQ(place({"--rdzv-endpoint", "h:7"}), "h 7");
  EXPECT_EQ(place({"--rdzv-endpoint", "h"}), "h 29500");
  EXPECT_EQ(place({"--rdzv-backend=c10d", "--rdzv-endpoint", "h"}), "h 29400");
  EXPECT_EQ(place({"--rdzv-backend=c10d", "--rdzv-endpoint", "[fe80::1]:9"}), "fe80::1 9");
  EXPECT_EQ(place({"--rdzv-backend=c10d", "--rdzv-endpoint", "fe80::1"}), "fe80::1 29400");
  EXPECT_EQ(place({"--standalone", "--rdzv-endpoint", "h:nothing"}), " 0");
  EXPECT_EQ(plan({"--local-addr", "me"}).local_addr, "me");
  EXPECT_EQ(place({"--rdzv-endpoint", "my_host-1.a:7"}), "my_host-1.a 7");
  for (const char* bad : {"bad host:123", "bad host", "http://h:1", "h,i:1"}) {
    EXPECT_EQ(error_of({"--rdzv-backend=c10d", "--rdzv-endpoint", bad}),
              std::string("--rdzv-endpoint: expected HOST[:PORT] with the name or address of a machine, but got '") + bad +
                  "' (flag --rdzv-endpoint)");
  }
  EXPECT_EQ(
      error_of({"--rdzv-backend=c10d", "--rdzv-endpoint", "fd00::7:29499"}),
      "--rdzv-endpoint: expected an IPv6 address in brackets before the port, [fd00::7]:29499, but got 'fd00::7:29499' (flag "
      "--rdzv-endpoint)");
  EXPECT_EQ(error_of({"--rdzv-backend=c10d", "--rdzv-endpoint", "localhost:99999"}),
            "--rdzv-endpoint: expected HOST[:PORT] with a port from 0 to 65535, but got 'localhost:99999' (flag "
            "--rdzv-endpoint)");
}

TEST_F(RendezvousTest, Timeouts) {
  using std::chrono::milliseconds;
  const RendezvousPlan unset = plan({});
  EXPECT_EQ(unset.join_timeout, milliseconds(600'000));
  EXPECT_EQ(unset.last_call_timeout, milliseconds(2'000));  // 2 s; torchrun waits 30 s
  const RendezvousPlan set = plan({"--rdzv-backend=c10d", "--rdzv-conf",
                                   "join_timeout=5,last_call_timeout=0.5,close_timeout=1,heartbeat_timeout=2,"
                                   "keep_alive_interval=3,keep_alive_max_attempt=4,read_timeout=6,is_host=True,timeout=9"});
  EXPECT_EQ(set.join_timeout, milliseconds(5'000));
  EXPECT_EQ(set.last_call_timeout, milliseconds(500));
  EXPECT_EQ(set.heartbeat_timeout, milliseconds(2'000));
  EXPECT_EQ(set.is_host, true);
  EXPECT_EQ(plan({"--rdzv-conf", "timeout=9"}).join_timeout, milliseconds(9'000));
  EXPECT_EQ(error_of({"--rdzv-conf", "join_timeout=soon"}),
            "--rdzv-conf: join_timeout must be a number of seconds above 0, but is 'soon' (flag --rdzv-conf)");
  for (const char* bad : {"join_timeout=0", "keep_alive_max_attempt=1.5", "is_host=maybe", "timeout=-1"}) {
    EXPECT_NE(error_of({"--rdzv-conf", bad}).find("must be"), std::string::npos) << bad;
  }
  EXPECT_EQ(choice({"--rdzv-conf", "store_type=tcp,rank=0"}).notes.size(), 2u);
  EXPECT_EQ(
      choice({"--rdzv-conf", "close_timeout=1,keep_alive_interval=3,keep_alive_max_attempt=4,read_timeout=6"}).notes.size(),
      4u);
  EXPECT_TRUE(choice({"--rdzv-conf", "store_type=tcp,rank=0"}).warnings.empty());
}

TEST(RdzvConf, FollowsTorchrunRules) {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(parse_rdzv_conf({"'join_timeout=5, timeout = 6'", "x"}), (Pairs{{"join_timeout", "5"}, {"timeout", "6"}}));
  EXPECT_EQ(parse_rdzv_conf({"a=b=c", "x"}), (Pairs{{"a", "b=c"}}));
  EXPECT_EQ(parse_rdzv_conf({"", "x"}), Pairs{});
  for (const char* bad : {"a=1,", "a=1,,b=2", "=1", "a=", "a"}) EXPECT_THROW(parse_rdzv_conf({bad, "x"}), UsageError) << bad;
}

TEST_F(PlanTest, OptionsWithoutEffectAreReported) {
  EXPECT_EQ(plan({"--start-method", "fork", "train.py"}).notes.size(), 1u);
  EXPECT_EQ(plan({"--rdzv-conf", "join_timeot=3", "train.py"}).warnings.at(0),
            "--rdzv-conf: unknown key 'join_timeot' has no effect. Did you mean 'join_timeout'?");
}

TEST_F(PlanTest, RunPathAlwaysMeansAScript) {
  EXPECT_EQ(plan({"--run-path", "--no-python", "-m", "train.py", "a"}).command,
            (Words{"/usr/bin/python3", "-u", "train.py", "a"}));
  EXPECT_EQ(plan({"--run-path", "train.json"}).kind, Plan::Kind::kPython);
  EXPECT_EQ(plan({"--run-path", "./tool.sh"}).kind, Plan::Kind::kPython);
}

TEST_F(PlanTest, AsTorchrunEverythingButAConfigIsPython) {
  EXPECT_EQ(plan({"./tool.sh"}, CalledAs::kTorchrun).kind, Plan::Kind::kPython);
  EXPECT_EQ(plan({"--no-python", "./tool.sh"}, CalledAs::kTorchrun).kind, Plan::Kind::kProgram);
  EXPECT_EQ(plan({"train.json"}, CalledAs::kTorchrun).kind, Plan::Kind::kTrain);
  EXPECT_TRUE(plan({"train.py"}, CalledAs::kTorchrun).as_torchrun);
  EXPECT_FALSE(plan({"train.py"}).as_torchrun);
  EXPECT_EQ(name_called_by("/usr/local/bin/torchrun"), CalledAs::kTorchrun);
  EXPECT_EQ(name_called_by("torchrun"), CalledAs::kTorchrun);
  EXPECT_EQ(name_called_by("torchrun/ddprun"), CalledAs::kDdprun);
  EXPECT_EQ(torchrun_exit_code(0), 0);
  EXPECT_EQ(torchrun_exit_code(139), 1);
}

TEST_F(PlanTest, AnEnvironmentsLinkUsesItsPython) {
  fs::create_directories(folder_ / "env/bin");
  write("env/bin/python", "#!/bin/sh\n", 0755);
  const std::string python = (folder_ / "env/bin/python").string();
  environment_["VIRTUAL_ENV"] = "/nowhere";
  const auto by_path = [this] { return plan({"train.py"}, CalledAs::kTorchrun, folder_ / "env/bin").command.front(); };
  EXPECT_EQ(by_path(), "/usr/bin/python3");  // without pyvenv.cfg, a folder with a python is not a virtual environment
  write("env/pyvenv.cfg", "");
  EXPECT_EQ(by_path(), python);
  EXPECT_EQ(plan({"train.py"}, CalledAs::kDdprun, folder_ / "env/bin").command.front(), python);
  write("env/bin/ddprun", "", 0755);
  fs::create_directories(folder_ / "elsewhere");
  fs::create_symlink(folder_ / "env/bin/ddprun", folder_ / "elsewhere/ddprun");
  EXPECT_EQ(plan({"train.py"}, CalledAs::kDdprun, folder_ / "elsewhere").command.front(), python);
  EXPECT_EQ(plan({"train.py"}, CalledAs::kDdprun, folder_).command.front(), "/usr/bin/python3");
  on_path_["torchrun"] = (folder_ / "env/bin/torchrun").string();
  EXPECT_EQ(plan({"train.py"}, CalledAs::kTorchrun).command.front(), python);
  environment_["PYTHON_EXEC"] = "/bin/sh";
  EXPECT_EQ(by_path(), "/bin/sh");
}

TEST_F(PlanTest, OnlyTorchrunPrintsTheThreadsBanner) {
  const Environment nothing = [](std::string_view) { return std::nullopt; };
  const Environment set = [](std::string_view name) {
    return name == "OMP_NUM_THREADS" ? std::optional<std::string>("4") : std::nullopt;
  };
  const Environment quiet = [](std::string_view name) {
    return name == "LOGLEVEL" ? std::optional<std::string>("ERROR") : std::nullopt;
  };
  const Plan two = plan({"--nproc-per-node", "2", "train.py"}, CalledAs::kTorchrun);
  const std::string banner = threads_banner(two, nothing);
  EXPECT_NE(banner.find("] Setting OMP_NUM_THREADS environment variable for each process to be 1"), std::string::npos)
      << banner;
  EXPECT_EQ(banner.front(), 'W');
  EXPECT_EQ(std::count(banner.begin(), banner.end(), '\n'), 4);
  EXPECT_EQ(threads_banner(two, set), "");
  EXPECT_EQ(threads_banner(two, quiet), "");
  EXPECT_EQ(threads_banner(plan({"train.py"}, CalledAs::kTorchrun), nothing), "");
  EXPECT_EQ(threads_banner(plan({"--nproc-per-node", "2", "train.py"}), nothing), "");
}

TEST_F(PlanTest, SlurmWorkersShareTheCpusOfTheirTask) {
  const auto threads = [this](const std::string& workers, CalledAs name = CalledAs::kDdprun) {
    return plan({"--standalone", "--nproc-per-node", workers, "train.py"}, name).threads_per_worker;
  };
  environment_["SLURM_CPUS_PER_TASK"] = "9";
  EXPECT_EQ(threads("2"), 1) << "without a job of Slurm the variable is a leftover";
  environment_["SLURM_JOB_ID"] = "7";
  EXPECT_EQ(threads("2"), 4);
  EXPECT_EQ(threads("1"), 1) << "PyTorch counts the CPUs itself";
  EXPECT_EQ(threads("9"), 1);
  EXPECT_EQ(threads("20"), 1);
  EXPECT_EQ(threads("2", CalledAs::kTorchrun), 1);
  for (const char* odd : {"", "0", "-4", "many", "99999999999"}) {
    environment_["SLURM_CPUS_PER_TASK"] = odd;
    EXPECT_EQ(threads("2"), 1) << odd;
  }
  environment_["SLURM_CPUS_PER_TASK"] = "8";
  environment_["OMP_NUM_THREADS"] = "3";
  EXPECT_EQ(threads("2"), 1) << "the workers inherit it";
}

TEST_F(PlanTest, Placement) {
  EXPECT_EQ(plan({"train.py"}).numa, Numa::kNone);
  EXPECT_FALSE(plan({"train.py"}).virtual_local_rank);
  EXPECT_EQ(plan({"--numa-binding", "core-complex", "train.py"}).numa, Numa::kCoreComplex);
  EXPECT_EQ(plan({"--numa-binding=socket", "train.json"}).numa, Numa::kSocket);
  EXPECT_TRUE(plan({"--virtual_local_rank", "train.py"}).virtual_local_rank);
  EXPECT_EQ(plan({"--numa-binding=node", "train.py"}).places.at(0).cpus, (std::vector<int>{0, 1}));
  EXPECT_NE(error_of({"--nproc-per-node", "xpu", "train.py"}).find("no Intel GPU"), std::string::npos);
  machine_.xpus = [] { return 3; };
  EXPECT_EQ(plan({"--nproc-per-node", "xpu", "train.py"}).nproc_per_node, 3);
  EXPECT_EQ(plan({"--nproc-per-node", "auto", "train.py"}).nproc_per_node, 3);
}

TEST_F(PlanTest, AnEmptyRunDirectoryIsRefused) {
  EXPECT_EQ(error_of({"--run-dir", "", "train.json"}), "--run-dir: expected the name of a folder, but got '' (flag --run-dir)");
  EXPECT_NE(error_of({"--run-dir=", "train.py"}).find("the name of a folder"), std::string::npos);
  EXPECT_NE(error_of({"--resume=", "train.json"}).find("auto, never or"), std::string::npos);
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

TEST_F(PlanTest, LiveRecoveryIsTheDefaultForSeveralWorkers) {
  const Plan two = plan({"--nproc-per-node", "2", "train.json"});
  EXPECT_EQ(source_of(two, "recovery"), "live from default");
  EXPECT_GT(two.regroup_limit.count(), 0);
  for (const Plan& p : {plan({"--nproc-per-node", "2", "--recovery", "checkpoint", "train.json"}),
                        plan({"--nproc-per-node", "1", "train.json"})}) {
    EXPECT_EQ(source_of(p, "recovery").substr(0, 15), "checkpoint from");
    EXPECT_EQ(p.regroup_limit.count(), 0);
  }
  const Plan nodes = plan({"--nproc-per-node", "2", "--nnodes", "2", "--master-addr", "h", "train.json"});
  EXPECT_EQ(source_of(nodes, "recovery"), "checkpoint from default");
  EXPECT_EQ(nodes.regroup_limit.count(), 0);
  EXPECT_GT(plan({"--nnodes", "2", "--master-addr", "h", "--recovery", "live", "train.json"}).regroup_limit.count(), 0);
}

TEST_F(PlanTest, LiveRecoveryAlsoWorksForPrograms) {
  EXPECT_GT(plan({"--nproc-per-node", "2", "--no-python", "sh"}).regroup_limit.count(), 0);
  EXPECT_EQ(plan({"--nproc-per-node", "2", "--recovery", "checkpoint", "--no-python", "sh"}).regroup_limit.count(), 0);
  EXPECT_EQ(plan({"--nproc-per-node", "1", "--no-python", "sh"}).regroup_limit.count(), 0);
  const auto on_nodes = [&](Words more) {
    Words words{"--nproc-per-node", "1", "--nnodes", "2", "--master-addr", "h"};
    words.insert(words.end(), more.begin(), more.end());
    return plan(words).regroup_limit.count();
  };
  EXPECT_EQ(on_nodes({"--no-python", "sh"}), 0);
  EXPECT_GT(on_nodes({"--recovery", "live", "--no-python", "sh"}), 0);
  EXPECT_EQ(on_nodes({"--recovery", "live", "-m", "site"}), 0) << "Python cannot leave a group";
  const Plan in_python = plan({"--nnodes", "2", "--master-addr", "h", "--recovery", "live", "-m", "site"});
  EXPECT_EQ(
      std::count(in_python.notes.begin(), in_python.notes.end(),
                 "--recovery live has no effect: on several machines, all workers of a Python script restart if one is lost"),
      1);
}

TEST_F(PlanTest, LiveRecoveryWithNcclIsOptInWithAWarning) {
  gpus_ = 2;
  const auto live_nccl = [](const Plan& p) {
    const std::vector<std::string> command = p.command;
    return std::find(command.begin(), command.end(), "--live-nccl") != command.end();
  };
  for (const Words& words :
       {Words{"--recovery", "live", "train.json"}, Words{"--recovery", "live", "train.json", "device=cuda"},
        Words{"--nproc-per-node", "2", "--recovery", "live", "train.json", "device=cuda"}}) {
    const Plan p = plan(words);
    ASSERT_EQ(p.warnings.size(), 1U);
    EXPECT_NE(p.warnings[0].find("live recovery through NCCL is implemented but has never run"), std::string::npos);
    EXPECT_TRUE(live_nccl(p));
    EXPECT_GT(p.regroup_limit.count(), 0);
  }
  EXPECT_TRUE(plan({"train.json"}).warnings.empty());
  EXPECT_EQ(plan({"train.json"}).regroup_limit.count(), 0);
  EXPECT_FALSE(live_nccl(plan({"train.json"})));
  EXPECT_TRUE(plan({"--recovery", "live", "train.json", "device=cpu"}).warnings.empty());
  EXPECT_TRUE(plan({"--recovery", "checkpoint", "train.json"}).warnings.empty());
  environment_ = {{"DDPTRAIN_SHARE_GPU", "1"}};
  EXPECT_TRUE(plan({"--nproc-per-node", "4", "--recovery", "live", "train.json", "device=cuda"}).warnings.empty());
}

TEST_F(PlanTest, StandbysNeedAJobThatCanUseThem) {
  const Plan p = plan({"--nproc-per-node", "2", "--standby", "1", "train.json"});
  EXPECT_EQ(p.standbys, 1);
  EXPECT_EQ(source_of(p, "standby"), "1 from flag --standby");
  EXPECT_NE(dry_run_text(p, {}).find("start 2 workers, plus 1 standby"), std::string::npos);
  EXPECT_EQ(plan({"--nproc-per-node", "2", "train.json"}).standbys, 0);
  EXPECT_EQ(plan({"--standby", "0", "train.py"}).standbys, 0);
  const std::vector<std::pair<Words, std::string>> refused{
      {{"--nproc-per-node", "1", "train.json"}, "needs at least two workers"},
      {{"--nproc-per-node", "2", "--recovery", "checkpoint", "train.json"}, "needs --recovery live"},
      {{"--nproc-per-node", "2", "--max-restarts", "0", "train.json"}, "with --max-restarts 0 a lost worker is not replaced"},
      {{"--nproc-per-node", "2", "--nnodes", "2", "--master-addr", "h", "train.json"}, "requires a single machine"},
      {{"--nproc-per-node", "2", "--virtual-local-rank", "train.json"}, "cannot be combined with --virtual-local-rank"},
      {{"--nproc-per-node", "2", "--numa-binding", "node", "train.json"}, "cannot be combined with --numa-binding"},
  };
  for (auto [words, why] : refused) {
    words.insert(words.begin(), {"--standby", "1"});
    const std::string error = error_of(words);
    EXPECT_TRUE(error.starts_with("--standby (flag --standby) ")) << error;
    EXPECT_NE(error.find(why), std::string::npos) << error;
  }
}

TEST_F(PlanTest, SparesNeedARestartableScript) {
  const fs::path bin = folder_ / "build/bin";
  fs::create_directories(bin);
  fs::create_directories(folder_ / "python/ddprun/_spare");
  machine_.next_to_self = [bin](std::string_view name) -> std::optional<fs::path> { return bin / name; };
  on_path_["python3"] = fs::read_symlink("/proc/self/exe").string();  // an ELF program in place of Python
  const Words words{"--standby", "3", "--max-restarts", "2", "train.py"};
  EXPECT_EQ(plan(words).standbys, 0);
  EXPECT_NE(plan(words).warnings.at(0).find("ddprun's Python files are missing"), std::string::npos);
  write("python/ddprun/_spare/sitecustomize.py", "");
  const Plan p = plan(words);
  EXPECT_EQ(p.standbys, 3);
  EXPECT_EQ(p.preload, "torch,torch._dynamo");
  EXPECT_EQ(p.spare_hook, (folder_ / "python/ddprun/_spare").string());
  EXPECT_TRUE(p.warnings.empty());
  EXPECT_EQ(plan({"--standby", "1", "--max-restarts", "1", "--preload", "numpy", "-m", "pkg"}).preload, "numpy");
  // If python3 is a shell script that starts Python, the shell script may remove the folder of the spare interpreter from the
  // module path. Then the spare interpreter would run the training script as a worker.
  write("shim", "#!/bin/sh\n", 0755);
  on_path_["python3"] = (folder_ / "shim").string();
  EXPECT_EQ(plan(words).standbys, 0);
  EXPECT_NE(plan(words).warnings.at(0).find("is a script that starts Python"), std::string::npos);
  const std::vector<std::pair<Words, std::string>> refused{
      {{"train.py"}, "--standby (flag --standby) requires --max-restarts above 0"},
      {{"--max-restarts", "1", "./tool.sh"}, "--standby (flag --standby) requires a train.json"},
      {{"--max-restarts", "1", "--virtual-local-rank", "train.py"}, "cannot be combined with --virtual-local-rank"},
      {{"--max-restarts", "1", "--preload", "../torch", "train.py"}, "module names"},
  };
  for (auto [more, why] : refused) {
    more.insert(more.begin(), {"--standby", "1"});
    EXPECT_NE(error_of(more).find(why), std::string::npos) << error_of(more);
  }
}

TEST_F(PlanTest, DryRunShowsTheWholePlan) {
  const Plan p = plan({"--nproc-per-node", "2", "train.py", "a b"});
  const std::string text = dry_run_text(p, environment_of_rank_0(p, {"HOME=/h", "RANK=9"}));
  for (const char* part : {"start 2 workers", "/usr/bin/python3 -u train.py 'a b'", "  RANK=0\n", "  WORLD_SIZE=2\n",
                           "  MASTER_PORT=29500\n", "(flag --nproc-per-node)"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
  EXPECT_EQ(text.find("HOME"), std::string::npos);
}

TEST_F(PlanTest, OutputOfAScript) {
  const OutputPlan nothing = plan({"train.py"}).output;
  EXPECT_FALSE(nothing.redirects.any() || nothing.tee.any() || nothing.local_ranks_filter || nothing.no_files);
  EXPECT_EQ(nothing.prefix_template, "[${role_name}${local_rank}]:");

  const Plan p =
      plan({"--nproc-per-node=2", "-r", "0:1,1:2", "-t3", "--local-ranks-filter", "0, 1", "--duplicate-stdout-filters=a,,b,c",
            "--duplicate-stderr-filters", "x", "--log-line-prefix-template", "${rank}>", "--log-dir=/dev/null", "train.py"});
  EXPECT_EQ(p.output.redirects.of(0), Streams::kOut);
  EXPECT_EQ(p.output.redirects.of(1), Streams::kErr);
  EXPECT_EQ(p.output.redirects.of(2), Streams::kNone);
  EXPECT_EQ(p.output.tee.of(7), Streams::kBoth);
  EXPECT_EQ(p.output.local_ranks_filter, (std::set<int>{0, 1}));
  EXPECT_EQ(p.output.stdout_filters, (Words{"a,b", "c"}));
  EXPECT_EQ(p.output.stderr_filters, (Words{"x"}));
  EXPECT_EQ(p.output.prefix_template, "${rank}>");
  EXPECT_TRUE(p.output.no_files);
  EXPECT_TRUE(p.log_dir.empty());
  EXPECT_EQ(source_of(p, "tee"), "3 from flag --tee");
  EXPECT_TRUE(p.notes.empty());
  EXPECT_EQ(plan({"--tee=1:1", "train.py"}).notes.at(0), "--tee names local rank 1, but there is one worker");
  EXPECT_EQ(plan({"--tee=3", "train.json"}).notes.at(0), "--tee has no effect with a train.json");
  EXPECT_NE(error_of({"--local-ranks-filter", "0,", "train.py"}).find("local ranks such as"), std::string::npos);
}

TEST(Streams, AreANumberOrAMap) {
  EXPECT_EQ(parse_streams("tee", {"2", "x"}).default_streams, Streams::kErr);
  const StreamsByRank map = parse_streams("tee", {"0:3,1:0,12:1", "x"});
  EXPECT_EQ(map.default_streams, Streams::kNone);
  EXPECT_EQ(map.by_local_rank, (std::map<int, Streams>{{0, Streams::kBoth}, {1, Streams::kNone}, {12, Streams::kOut}}));
  EXPECT_EQ(parse_streams("tee", {"0:1,0:2", "x"}).of(0), Streams::kErr);  // if a rank has two entries, the last one applies
  for (const char* bad :
       {"", "4", "11", "0:1,", ",0:1", "0:4", "0:", ":1", "-1:1", "0:1;1:2", "0 :1", "a:1", "0:11", "3,0:1"}) {
    EXPECT_THROW(parse_streams("tee", {bad, "x"}), UsageError) << bad;
  }
}

TEST(Filters, ADoubleCommaIsAComma) {
  EXPECT_EQ(parse_filters("apple,orange"), (Words{"apple", "orange"}));
  EXPECT_EQ(parse_filters("a,,b"), (Words{"a,b"}));
  EXPECT_EQ(parse_filters("a,,,b"), (Words{"a,", "b"}));
  EXPECT_EQ(parse_filters("a,"), (Words{"a", ""}));
}

TEST(Shell, QuotesWhatNeedsIt) {
  EXPECT_EQ(shell_quoted("a/b-c=1"), "a/b-c=1");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("it's $x"), "'it'\\''s $x'");
}

}  // namespace
}  // namespace ddprun
