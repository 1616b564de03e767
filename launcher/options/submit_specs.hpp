// The two forms of `ddprun submit`, one for each scheduler, with their arguments and texts.
// launcher/commands/subcommand_submit.cpp uses them. The table of subcommands (subcommand_names.hpp) has one row for both.
#pragma once

#include "launcher/options/subcommand_names.hpp"

namespace ddprun {

inline constexpr SubcommandSpec kSubmitToSlurm{
    "submit",
    "--slurm [options] TRAIN.json|PROGRAM [arguments ...]",
    "submit a job to Slurm",
    "--slurm --nodes --spares --time --partition --gpus --cpus-per-task --signal-before --account --qos --job-name --array "
    "--max-failures --max-timeouts --sbatch --run-dir --token-file --shutdown-timeout --dry-run",
    "Writes a batch file, RUN_DIR/slurm/submit.sbatch, and submits it with sbatch. At the time limit and on preemption the "
    "job\n"
    "saves and returns to the queue. Other options of ddprun may be given as well.\n"
    "  --nodes N|MIN:MAX        number of nodes; default: 1\n"
    "  --spares N               additional nodes, which wait until another node is lost\n"
    "  --time T                 time limit of each start, as in sbatch: 90 (minutes), 12:00:00, 2-12:00:00\n"
    "  --partition P, --account A, --qos Q, --job-name NAME, --array LIST   as in sbatch\n"
    "  --gpus G                 GPUs of each node: 8, or h100:8\n"
    "  --cpus-per-task N        CPUs of each node\n"
    "  --signal-before SECONDS  the job starts to save this long before the time limit; default: 120\n"
    "  --shutdown-timeout S     time to save; default: three quarters of --signal-before\n"
    "  --max-failures N         requeues after failures; default: 3\n"
    "  --max-timeouts N         requeues after time limits without a newer checkpoint; default: 3\n"
    "  --sbatch OPTION          an additional sbatch option, such as mem=64G; may be repeated\n"
    "  --run-dir DIR            default: runs/<name of the config or script>\n"
    "  --token-file FILE        file with the job's secret; default on several nodes: RUN_DIR/token\n"
    "  --dry-run                print the batch file, and submit nothing\n"
    "In a job array, %a in an argument becomes the index of the task. Each task has the run directory RUN_DIR/task-<index>.\n",
    true};

inline constexpr SubcommandSpec kSubmitToKubernetes{
    "submit",
    "--k8s --image IMAGE [--kind KIND] [--nodes N|MIN:MAX] [--gpus N] [--cpus N] [--memory SIZE] [--shm SIZE] [--name "
    "NAME] "
    "[--namespace NAMESPACE] [--run-dir DIR] [--claim NAME | --storage SIZE] [--secret NAME] [--queue NAME] [--spot] "
    "[--grace SECONDS] [--dry-run] [--] [options of ddprun] TRAIN.json|PROGRAM [arguments]",
    "start a job on a cluster",
    "--k8s --dry-run --kind --name --namespace --image --nodes --gpus --cpus --memory --shm --run-dir --claim --storage "
    "--secret --queue --spot --grace",
    "Writes the Kubernetes manifests of a job to NAME.yaml and runs kubectl apply. Options of ddprun, such as\n"
    "--max-restarts, follow after --. Each pod runs one ddprun with the same command.\n"
    "  --dry-run        print the manifests, and do nothing else\n"
    "  --image IMAGE    the container image, with ddprun and the program\n"
    "  --kind KIND      job (default), jobset, trainjob, or runtime: the ClusterTrainingRuntime of all TrainJobs\n"
    "  --nodes N        number of pods, or MIN:MAX; default: 1\n"
    "  --gpus N         GPUs and workers of each pod; default: 0, with one worker\n"
    "  --cpus N, --memory SIZE  resources of each pod; default: 4 and 32Gi per GPU, or 4 and 8Gi\n"
    "  --shm SIZE       size of /dev/shm, a part of --memory; default: a quarter of --memory\n"
    "  --name NAME      name of the job; default: from the program\n"
    "  --namespace NAMESPACE  default: the namespace that kubectl uses\n"
    "  --run-dir DIR    run directory in the pods; the volume is mounted at its parent; default: /runs/NAME\n"
    "  --claim NAME     an existing PersistentVolumeClaim; default: a new one, with --storage SIZE (100Gi)\n"
    "  --secret NAME    the Secret whose key token contains the token; default: NAME-token\n"
    "  --queue NAME     the LocalQueue of Kueue\n"
    "  --spot           prefer machines that the provider may take back\n"
    "  --grace SECONDS  time from SIGTERM to SIGKILL; default: 60, with --spot 25\n",
    false,
    true};

}  // namespace ddprun
