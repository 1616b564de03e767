// Tests the text of the batch file of `ddprun submit --slurm`. A real bash checks the quotes in it.
#include "launcher/submit/slurm/slurm_batch.hpp"

#include <gtest/gtest.h>

#include "common/base/error.hpp"
#include "launcher/machine/program_output.hpp"
#include "launcher/submit/slurm/slurm_request.hpp"

namespace ddprun {
namespace {

SlurmRequest request_of(std::vector<std::string> args) {
  args.insert(args.begin(), "--slurm");
  return slurm_request(split_submit_words(args), {.ddprun = "/opt/ddprun", .folder = "/home/ann", .default_name = "train"});
}

std::string batch_of(std::vector<std::string> args) {
  return slurm_batch_text(request_of(std::move(args)));
}

std::string submit_refusal(std::vector<std::string> args) {
  try {
    batch_of(std::move(args));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing is refused";
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(SlurmBatch, TheWholeFile) {
  EXPECT_EQ(batch_of({"--nodes", "2", "--gpus", "8", "--time=12:00:00", "train.json", "optimizer.lr=0.1"}),
            R"(#!/bin/bash
# Written by ddprun submit for train.json. You may change this file and submit it with sbatch.

#SBATCH --job-name=train
#SBATCH --chdir=/home/ann
# Slurm starts one agent on each node, and the agent starts the workers of its node.
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --time=12:00:00
# Slurm sends SIGTERM to the agents this many seconds before the time limit, so that the job saves.
#SBATCH --signal=TERM@120
# The job may return to the queue. It continues if Slurm loses one of its nodes.
#SBATCH --requeue
#SBATCH --no-kill
# All starts of the job append to the same log file.
#SBATCH --open-mode=append
#SBATCH --output=/home/ann/runs/train/slurm/%j.out

run_dir=/home/ann/runs/train

# The agents read the nodes and ports of this job from Slurm. If one agent ends, the others continue.
code=0
srun --ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 --wait=0 \
  /opt/ddprun --run-dir "$run_dir" --shutdown-timeout 90 \
  --token-file /home/ann/runs/train/token \
  train.json optimizer.lr=0.1 || code=$?

# Returns the job to the queue after a preemption or a time limit, and after at most 3 failures.
exec /opt/ddprun submit --slurm --after "$code" --run-dir "$run_dir" \
  --signal-before 120 --max-failures 3 --max-timeouts 3
)");
}

TEST(SlurmBatch, OptionsBecomeLines) {
  const std::string text =
      batch_of({"--partition", "gpu", "--account=a", "--qos=q", "--job-name=my job", "--cpus-per-task=8", "--sbatch", "mem=64G",
                "--sbatch=--exclusive", "--signal-before=300", "--max-failures=5", "--max_timeouts=7", "--run-dir=runs/x",
                "--max-restarts=9", "-m", "pkg.train", "--lr", "3"});
  for (const char* line : {"#SBATCH --partition=gpu", "#SBATCH --account=a", "#SBATCH --qos=q", "#SBATCH --job-name=\"my job\"",
                           "#SBATCH --cpus-per-task=8", "#SBATCH --mem=64G", "#SBATCH --exclusive", "#SBATCH --signal=TERM@300",
                           "run_dir=/home/ann/runs/x", "  --max-restarts=9 \\", "  --module \\",
                           "  pkg.train --lr 3 || code=$?", "  --signal-before 300 --max-failures 5 --max-timeouts 7",
                           "srun --ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 --wait=0 --cpus-per-task=8 \\",
                           "  /opt/ddprun --run-dir \"$run_dir\" --shutdown-timeout 225 \\"})
    EXPECT_TRUE(has_line(text, line)) << line << "\n" << text;
  EXPECT_EQ(text.find("--token-file"), std::string::npos);  // one node needs no token
}

TEST(SlurmBatch, OptionsMayFollowAConfig) {
  EXPECT_TRUE(has_line(batch_of({"train.json", "--nodes", "3", "epochs=2", "--max-restarts", "1"}), "#SBATCH --nodes=3"));
  // The arguments of a script are never parsed as options of ddprun.
  EXPECT_TRUE(has_line(batch_of({"train.py", "--nodes", "3"}), "  train.py --nodes 3 || code=$?"));
}

TEST(SlurmBatch, ElasticNodesAndSpares) {
  const std::string elastic = batch_of({"--nodes", "2:4", "train.py"});
  EXPECT_TRUE(has_line(elastic, "#SBATCH --nodes=2-4"));
  EXPECT_TRUE(has_line(elastic, "  --nnodes \"2:$SLURM_JOB_NUM_NODES\" \\")) << elastic;
  const std::string spare = batch_of({"--nodes", "4", "--spares", "1", "train.py"});
  EXPECT_TRUE(has_line(spare, "#SBATCH --nodes=5"));
  EXPECT_TRUE(has_line(spare, "  --nnodes 4 \\")) << spare;
  EXPECT_TRUE(
      has_line(batch_of({"--nodes", "2:4", "--spares", "1", "train.py"}), "  --nnodes \"2:$((SLURM_JOB_NUM_NODES - 1))\" \\"));
}

TEST(SlurmBatch, ATaskOfAnArrayHasItsOwnRunDirectory) {
  const std::string text = batch_of({"--array", "0-3%2", "train.json", "seed=%a", "name=a%ab%a"});
  EXPECT_TRUE(has_line(text, "#SBATCH --array=0-3%2"));
  EXPECT_TRUE(has_line(text, "#SBATCH --output=/home/ann/runs/train/slurm/%A_%a.out"));
  EXPECT_TRUE(has_line(text, "run_dir=/home/ann/runs/train/task-\"$SLURM_ARRAY_TASK_ID\""));
  EXPECT_NE(text.find("train.json seed=\"$SLURM_ARRAY_TASK_ID\" name=a\"$SLURM_ARRAY_TASK_ID\"b\"$SLURM_ARRAY_TASK_ID\" ||"),
            std::string::npos)
      << text;
  EXPECT_EQ(with_array_index("a%ab%a", "12"), "a12b12");
  EXPECT_NE(batch_of({"train.py", "100%a"}).find("100%a"), std::string::npos);  // without an array, %a is text
}

// In this test, bash prints each argument between brackets.
TEST(SlurmBatch, BashReadsTheWordsAsGiven) {
  const std::vector<std::string> words{
      "plain", "two words",  "it's", "\"quoted\"", "$HOME",     "`id`", "$(id)", "a\\b",   "a\nb\n",        "",   "*",
      "~",     "#SBATCH -x", "!x",   "a;b",        "--lr=1e-3", "\t",   "é\xff", "'\\''x", "${local_rank}", "%a", "a&b>c"};
  std::string command = "printf '[%s]'";
  std::string expected;
  for (const std::string& word : words) {
    command += " " + bash_word(word, false);
    expected += "[" + word + "]";
  }
  EXPECT_EQ(output_of({"/bin/bash", "-c", command}).text, expected);
}

// Runs a whole batch file. Instead of srun and ddprun, it runs commands that print their arguments.
TEST(SlurmBatch, BashRunsTheWholeFile) {
  const std::string path = "/home/a b/it's $x/\"y\"";
  SlurmRequest request = request_of({"--run-dir", path, "train.py", "a\n#SBATCH --nodes=9\n", "$USER"});
  request.ddprun = "ddprun";
  const std::string text =
      "srun() { printf '[%s]' \"$@\"; return 7; }; ddprun() { printf '(%s)' \"$@\"; }\n" + slurm_batch_text(request);
  const std::string runnable = text.substr(0, text.find("exec ")) + text.substr(text.find("exec ") + 5);
  const std::string output = output_of({"/bin/bash", "-c", runnable}).text;
  EXPECT_NE(output.find("[ddprun][--run-dir][" + path + "]"), std::string::npos) << output;
  EXPECT_NE(output.find("[train.py][a\n#SBATCH --nodes=9\n][$USER]"), std::string::npos) << output;
  EXPECT_NE(output.find("(submit)(--slurm)(--after)(7)(--run-dir)(" + path + ")"), std::string::npos) << output;
}

TEST(SlurmBatch, SbatchReadsQuotedValues) {
  EXPECT_EQ(sbatch_value("gpu[1-3],a", "x"), "gpu[1-3],a");
  EXPECT_EQ(sbatch_value("my job", "x"), "\"my job\"");
  EXPECT_EQ(sbatch_value(R"(a"b\c'd#e)", "x"), R"("a\"b\\c'd#e")");
  EXPECT_THROW(sbatch_value("a\nb", "x"), UsageError);
  // A literal % must be doubled, because % starts a pattern in the name of a log file.
  EXPECT_TRUE(
      has_line(batch_of({"--run-dir", "runs/50%j x", "train.py"}), "#SBATCH --output=\"/home/ann/runs/50%%j x/slurm/%j.out\""));
}

TEST(SlurmBatch, RefusesWhatCannotWork) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> rows{
      {{"--nodes", "0", "t.py"}, "--nodes: expected N or MIN:MAX"},
      {{"--nodes", "4:2", "t.py"}, "--nodes"},
      {{"--time", "tomorrow", "t.py"}, "--time: expected a time in sbatch's format"},
      {{"--partition", "", "t.py"}, "--partition: expected a value"},
      {{"--partition", "a\nb", "t.py"}, "control character"},
      {{"--run-dir", "a\\b", "t.py"}, "backslash"},
      {{"--run-dir", "a\nb", "t.py"}, "control character"},
      {{"--signal-before", "5", "t.py"}, "from 10 to 65535"},
      {{"--nnodes", "2", "t.py"}, "use --nodes"},
      {{"--master-addr", "h", "t.py"}, "from Slurm"},
      {{"--fresh", "t.json"}, "each requeue would start over"},
      {{"--resume", "never", "t.json"}, "resume from the newest checkpoint"},
      {{"--sbatch", "ntasks-per-node=8", "t.py"}, "#SBATCH --ntasks-per-node=1"},
      {{"--sbatch", "gpus-per-task=8", "t.py"}, "with --gpus"},
      {{"--sbatch", "signal=USR1@60", "t.py"}, "ddprun submit sets or excludes it"},
      {{"--sbatch", "mem=1\n#SBATCH -n9", "t.py"}, "--sbatch: expected the long name of one sbatch option"},
      {{"--sbatch=-n9", "t.py"}, "--sbatch: expected the long name of one sbatch option"},
      {{"--partion", "x", "t.py"}, "Did you mean --partition?"}};
  for (const auto& [args, expected] : rows)
    EXPECT_NE(submit_refusal(args).find(expected), std::string::npos) << expected << "\n" << submit_refusal(args);
}

TEST(SlurmBatch, TheTokenItselfIsNeverNeeded) {
  EXPECT_EQ(request_of({"--nodes", "2", "--token-file", "keys/t", "t.py"}).token_file, "/home/ann/keys/t");
  EXPECT_EQ(request_of({"--nodes", "2", "t.py"}).token_file, "/home/ann/runs/train/token");
  EXPECT_EQ(request_of({"--spares", "1", "t.py"}).token_file, "/home/ann/runs/train/token");
}

}  // namespace
}  // namespace ddprun
