// Manifests that run a job on Kubernetes: an indexed Job, a JobSet, or a TrainJob of Kubeflow with its runtime. `ddprun submit
// --k8s` prints or applies them, and configs/kubernetes contains examples. The code is pure: no I/O, no clock.
//
// The problem. The manifests of a job that survives a preemption have 110 to 230 lines. Most mistakes in them show only when a
// pod is evicted. If evictions count as failures, they end the job. If the grace period is shorter than a save, steps are
// lost. If a pod is replaced under a new name, it cannot join again.
//
// The idea. All kinds have the same pod, in the function pod_spec(), and the same rules for exit codes, in failure_policy().
// The kinds differ only in the objects around the pod:
//
//   Job       a headless Service gives each pod a name: train-0.train, train-1.train, ...
//   JobSet    its controller creates the Service; the pods are train-node-0-0.train, ...
//   TrainJob  an administrator creates a runtime with the part of the pod that is equal for all jobs. The TrainJob contains the
//             rest. The controller sets PET_MASTER_ADDR and PET_NODE_RANK.
//
// A job with MIN < MAX nodes is elastic: it starts with MIN pods, and the others join when the cluster has space for them. An
// exit code of 0 means that the whole job is done (rendezvous/coordinator/end_commit.hpp). So the first pod that succeeds
// completes the Job. A pod that is still waiting for a machine does not keep the Job running.
//
// The text contains no secret, only the name of a Secret. It contains no `suspend` field: Kueue sets it, and if a user applied
// the same file again, that field would stop the running job.
#pragma once

#include <string>
#include <vector>

namespace ddprun {

struct KubernetesJob {
  enum class Kind { kJob, kJobSet, kTrainJob, kRuntime };  // kRuntime: the ClusterTrainingRuntime of all TrainJobs
  enum class Capacity { kReserved, kSpot };                // kSpot: machines that the cloud provider may take back

  Kind kind = Kind::kJob;
  Capacity capacity = Capacity::kReserved;
  std::string name;
  std::string name_space{};  // if empty, the namespace of kubectl's context
  std::string image;
  int min_nodes = 1;
  int max_nodes = 1;
  int gpus = 0;               // per pod
  std::string cpus;           // CPUs per pod, as a Kubernetes quantity such as "8" or "500m"
  std::string memory;         // memory per pod, such as "64Gi"
  std::string shared_memory;  // size of /dev/shm; it counts towards `memory`
  std::string run_dir;        // absolute; its parent folder is the mount point of the volume
  std::string claim{};        // an existing PersistentVolumeClaim; if empty, the manifest creates one of the size `storage`
  std::string storage{};
  std::string secret;                  // the Secret whose key "token" contains the job's token
  std::string queue{};                 // Kueue's LocalQueue; empty if Kueue is not used
  int grace_s = 60;                    // seconds from SIGTERM to SIGKILL of a pod
  std::vector<std::string> options{};  // further options of ddprun
  std::vector<std::string> program{};  // the program and its arguments
  std::string config_text{};           // content of the train.json for the ConfigMap; empty if the image contains the file
  std::string made_by{};               // the command line that wrote the manifest, for the comment at its top
};

// The folder in which a pod finds the train.json of `config_text`.
inline constexpr const char* kConfigFolder = "/config";

// Returns the name of the runtime that a TrainJob uses.
std::string runtime_name(KubernetesJob::Capacity capacity);

// Returns the name of the Job that owns the pods, in kubectl's form: "job/train", or "job/train-node-0" for a JobSet and a
// TrainJob.
std::string pods_of(const KubernetesJob& job);

// Returns the manifests as YAML documents. All members of `job` must have been checked (kubernetes_request.hpp).
std::string kubernetes_manifests(const KubernetesJob& job);

}  // namespace ddprun
