// The subcommands with their arguments and texts. The parser, messages, help, completion and the manual page use this table.
// launcher/commands/subcommand.hpp declares the functions that run them, except for join and bench, which main() runs because
// they start a job.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace ddprun {

struct SubcommandSpec {
  std::string_view name;
  // The usage line. An option takes a value if the value's name follows it in this line, and [NAME] is an optional value.
  std::string_view arguments;
  std::string_view doc;         // one line without a final period
  std::string_view options;     // options with dashes, separated by spaces; the launcher's options are valid only for join
  std::string_view help{};      // text of --help after the usage line; if empty, `doc` as a sentence
  bool takes_command = false;   // the arguments are the command of a job, which only the launcher's parser can read
  bool starts_program = false;  // the first argument that is not an option, and all later ones, are words of a program
};

inline constexpr std::array kSubcommandTable{
    SubcommandSpec{"validate", "[--worker PROGRAM] TRAIN.json [key.path=value ...]",
                   "check a config and print it with every default filled in", "--worker",
                   "Checks a config and the files that it names, and prints it with every default filled in. --worker, or\n"
                   "\"worker\" in the config, names your own worker program, which is queried for its extra keys.\n"},
    SubcommandSpec{"init", "cpp FOLDER", "create a project for your own worker program", "",
                   "Creates a project of four files for your own worker program in C++: data, model and loss, a train.json,\n"
                   "a CMakeLists.txt and a README. The example trains without changes. FOLDER must be new or empty;\n"
                   "its name becomes the name of the program.\n"},
    SubcommandSpec{
        "report", "[FOLDER] [--json | --html [FILE]] [--open] [--follow]", "show what happened in a run",
        "--json --html --open --follow",
        "Shows what happened in a run: rounds, failures with their evidence, and how it ended. FOLDER is its run directory\n"
        "or its log folder. For a folder named by --log-dir, the newest run is shown. Default: your newest run that is\n"
        "running on this machine, or that has a report in this folder, in its subfolder runs or in the folder for temporary\n"
        "files (TMPDIR).\n"
        "  --html [FILE]  write the report, with the curves of metrics.jsonl, as one self-contained page; default:\n"
        "                 report.html next to the report\n"
        "  --open         write the same page, and open it\n"
        "  --follow       rewrite the page every few seconds while the job runs, with its workers; the page reloads itself\n"
        "  --json         print the report as JSON\n"
        "With --follow, FOLDER may also be the PID or title of a running job.\n"},
    SubcommandSpec{
        "plot", "RUN... [--figure NAME] [--output FILE]", "plot the losses of several runs in one chart", "--figure --output",
        "Plots a metric from metrics.jsonl of each run over its steps, all runs in one SVG file. RUN is a run directory.\n"
        "  --figure NAME  default: loss; any metric from steps or evaluations, such as lr, accuracy, samples_per_s\n"
        "  --output FILE  the SVG file; default: plot.svg\n"},
    SubcommandSpec{"join", "HOST:PORT [options of this node]", "join a job that another node coordinates",
                   "--token-file --local-addr --interface --nproc-per-node --run-dir --role --json --quiet --verbose"},
    SubcommandSpec{
        "token", "[--run-dir DIR | --token-file FILE | --new FILE] [--show]", "locate, create or show the job's secret",
        "--run-dir --token-file --new --show",
        "Prints the path of the token that a job on several machines uses on this machine. Creates a token if none exists.\n"
        "  --run-dir DIR      the job's run directory\n"
        "  --token-file FILE  the token file to use\n"
        "  --new FILE         create this file, readable by you only; it must not exist yet\n"
        "  --show             print the token itself\n"
        "Default: DDPRUN_TOKEN, else $XDG_CONFIG_HOME/ddprun/token (~/.config/ddprun/token).\n"},
    SubcommandSpec{
        "submit", "--slurm|--k8s [options] TRAIN.json|PROGRAM [arguments ...]", "submit a job to Slurm or Kubernetes",
        "--slurm --k8s --account --array --claim --cpus --cpus-per-task --dry-run --gpus --grace --image --job-name --kind "
        "--max-failures --max-timeouts --memory --name --namespace --nodes --partition --qos --queue --run-dir --sbatch "
        "--secret --shm --shutdown-timeout --signal-before --spares --spot --storage --time --token-file",
        "Submits a job to a scheduler, which the first argument names: --slurm or --k8s. `ddprun submit --slurm --help` and\n"
        "`ddprun submit --k8s --help` print the options.\n",
        true},
    SubcommandSpec{
        "doctor", "[--quick] [--here] [--json] [options] [TRAIN.json | PROGRAM ...]", "check whether machines can run a job",
        "--quick --here --json",
        "Checks whether this machine can run a job, and prints a verdict for each check: ok, warning or error. The job's\n"
        "options, program and arguments follow as in the job's own command. With --nnodes above 1, start it on all nodes:\n"
        "they meet as the nodes of the job do, and the first node prints a table for each node and their differences.\n"
        "  --quick  at most 3 seconds; otherwise ddptrain is started, torch is imported and samples of the data are read.\n"
        "           With several nodes: this node only\n"
        "  --here   several nodes: check this node only, without a meeting\n"
        "  --json   print one JSON object for each check: node, check, verdict, found, do\n"
        "Exit code 0: no errors; 1: at least one error; 2: wrong options.\n",
        true},
    SubcommandSpec{"bench", "COLLECTIVE [--sizes LIST] [--backend NAME] [--copied] [--json]",
                   "measure a collective between workers", "--sizes --backend --copied --json",
                   "Starts workers that run one collective, and prints its time and bandwidth for each size of the data.\n"
                   "Options of ddprun, such as --nproc-per-node, may follow COLLECTIVE.\n"
                   "COLLECTIVE: allreduce, reduce_scatter, allgather, broadcast, alltoall or sendrecv.\n"
                   "  --sizes LIST    bytes, such as 4096,64K,25M; default: 4K,64K,1M,25M\n"
                   "  --backend NAME  auto (default), shared, gloo or nccl, as ddp.backend in a train.json\n"
                   "  --copied        shared memory: with buffers outside the shared memory\n"
                   "  --json          one JSON object per size\n"
                   "Exit code 1: an element of a result was wrong.\n"},
    SubcommandSpec{"gpus", "[--json]", "show the current use of this machine's visible GPUs", "--json",
                   "Shows the current use of each GPU that is visible under CUDA_VISIBLE_DEVICES. The source is NVML.\n"
                   "--json: one line of JSON.\n"},
    SubcommandSpec{"ps", "[--json]", "list your running jobs on this machine", "--json",
                   "Lists your running jobs on this machine. --json: one line of JSON for each.\n"},
    SubcommandSpec{
        "status", "[JOB | --slurm JOB] [--json|--openmetrics|--healthy] [--here] [--hosts HOSTS]",
        "show the progress of a running job", "--json --openmetrics --healthy --here --slurm --hosts",
        "Shows the progress of a running job and the state of its workers, on all of its nodes.\n"
        "--here: on this node only. --openmetrics: as text for Prometheus.\n"
        "--healthy: prints nothing and returns 0 if the agent on this machine answers and its job is not ending after\n"
        "a failure. Otherwise prints one line and returns 1.\n"
        "--slurm: a Slurm job by its id or run directory, from the login node.\n"
        "--hosts: a job of ddprun --hosts. The command runs on the first of these hosts, over ssh.\n"},
    SubcommandSpec{"top", "[JOB] [--here]", "show the status every second", "--here",
                   "Shows the status every second until the job ends. Press q or Ctrl-C to leave.\n"
                   "--here: the status of this node only.\n"},
    SubcommandSpec{
        "stop", "[JOB | --slurm JOB] [--now] [--here | --node NODE] [--hosts HOSTS]", "save and stop a running job",
        "--now --here --node --slurm --hosts",
        "Stops a running job in an orderly way, as SIGTERM does, and waits for its end. Workers that can save do so.\n"
        "--now kills the workers. A job on several machines ends on all of them. --here stops only the node on this machine,\n"
        "as a SIGTERM to its ddprun does. --node does so for any node of the job, named by its host name or rank: the node\n"
        "leaves, and the job continues on the others. If they are too few for --nnodes, the command is refused.\n"
        "--slurm: a Slurm job by its id or run directory, from the login node. The job is not requeued.\n"
        "--hosts: a job of ddprun --hosts. The command runs on the first of these hosts, over ssh.\n"},
    SubcommandSpec{
        "logs", "[JOB | --slurm JOB] [-f] [--rank N] [--tail N] [--stderr] [--here] [--hosts HOSTS]",
        "print the workers' log files, and with -f new lines", "-f --rank --tail --stderr --here --slurm --hosts",
        "Prints the workers' log files of the newest round: all lines, or with --tail the last N lines of each file.\n"
        "  -f        also print new lines, until the job ends; starts with the last 10 lines\n"
        "  --rank N  this worker only\n"
        "  --stderr  standard error only\n"
        "  --here    for a job on several machines: log files on this machine only\n"
        "  --slurm   a Slurm job by its id or run directory, from the login node\n"
        "  --hosts   a job of ddprun --hosts; the command runs on the first of these hosts, over ssh\n"
        "Exit code 1: a node could not show its log files; a message names the node.\n"
        "JOB may also be the run directory or log folder of a job that has ended. For a folder named by --log-dir, the newest\n"
        "run is used.\n"},
    SubcommandSpec{
        "stacks", "[JOB] [--rank N] [--here]", "print the workers' call stacks", "--rank --here",
        "Prints the call stack of each worker, with py-spy, eu-stack or gdb, whichever is installed. --here: only the workers\n"
        "on this machine.\n"},
    SubcommandSpec{"attach", "[JOB] --rank N [--gdb | --py-spy]", "start a debugger on a worker", "--rank --gdb --py-spy",
                   "Starts a debugger on a worker on this machine: gdb, or with --py-spy a live profile of its Python code.\n"
                   "A worker that gdb has stopped makes no progress: --hang-timeout may end it.\n"},
    SubcommandSpec{"link-torchrun", "[FOLDER] [--force | --remove]", "create a link named torchrun, for scripts that call it",
                   "--force --remove",
                   "Creates a link named torchrun to this ddprun, so that scripts that call torchrun need no change.\n"
                   "  FOLDER    where to create it, such as ~/bin; default: the folder that contains ddprun\n"
                   "  --force   replace PyTorch's torchrun, which is kept as torchrun.before-ddprun\n"
                   "  --remove  remove the link, and restore what --force has kept\n"},
    SubcommandSpec{"help", "[SUBCOMMAND]", "print the help of ddprun or of a subcommand", ""},
    SubcommandSpec{"version", "", "print the version", ""},
};

// Returns nullptr for an unknown name.
inline const SubcommandSpec* find_subcommand(std::string_view name) {
  const auto found = std::ranges::find(kSubcommandTable, name, &SubcommandSpec::name);
  return found == kSubcommandTable.end() ? nullptr : &*found;
}

inline constexpr auto kSubcommands = [] {
  std::array<std::string_view, kSubcommandTable.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kSubcommandTable[i].name;
  return names;
}();

}  // namespace ddprun
