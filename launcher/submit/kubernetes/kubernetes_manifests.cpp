// Implementation of kubernetes_manifests.hpp. The functions follow the nesting of the objects, from the container outwards.
// Each function returns lines without indentation, and the caller indents them.
#include "launcher/submit/kubernetes/kubernetes_manifests.hpp"

#include <algorithm>
#include <string_view>

#include "launcher/submit/kubernetes/yaml_text.hpp"

namespace ddprun {
namespace {

using Kind = KubernetesJob::Kind;
using Capacity = KubernetesJob::Capacity;

constexpr const char* kTokenFolder = "/secrets";
constexpr int kUser = 1000;
// Number of counted failures per node after which a Job fails. If a whole job fails, each of its pods counts once. So the
// limit of a Job is kFailuresPerNode times the number of nodes. The runtime of TrainJobs does not know that number, so its
// limit is fixed.
constexpr int kFailuresPerNode = 6;
constexpr int kFailuresOfTrainJob = 96;

std::string number(int value) {
  return std::to_string(value);
}

// Returns one line "key: value", with the value as a YAML scalar.
std::string entry(std::string_view key, std::string_view value) {
  return std::string(key) + ": " + yaml_text(value) + "\n";
}

std::string item(std::string_view lines) {
  return "- " + indented(lines, 2).substr(2);
}

std::string section(std::string_view key, std::string_view lines) {
  return std::string(key) + ":\n" + indented(lines, 2);
}

bool is_elastic(const KubernetesJob& job) {
  return job.min_nodes < job.max_nodes;
}

std::string mount_folder(const KubernetesJob& job) {
  return job.run_dir.substr(0, job.run_dir.rfind('/'));
}

std::string config_name(const KubernetesJob& job) {
  return job.name + "-config";
}

std::string claim_name(const KubernetesJob& job) {
  return job.claim.empty() ? job.name + "-runs" : job.claim;
}

// ---- the container ----

// Returns the time in which the workers must save and end after SIGTERM. The agent ends in the rest of the grace period.
int shutdown_timeout(const KubernetesJob& job) {
  return job.grace_s - std::max(job.grace_s / 4, 5);
}

std::vector<std::string> command_of(const KubernetesJob& job) {
  const std::string nodes = is_elastic(job) ? number(job.min_nodes) + ":" + number(job.max_nodes) : number(job.max_nodes);
  std::vector<std::string> words{"ddprun",
                                 "--nnodes",
                                 nodes,
                                 "--nproc-per-node",
                                 number(std::max(job.gpus, 1)),
                                 "--max-restarts",
                                 "auto",
                                 "--shutdown-timeout",
                                 number(shutdown_timeout(job)),
                                 "--token-file",
                                 std::string(kTokenFolder) + "/token",
                                 "--run-dir",
                                 job.run_dir};
  words.insert(words.end(), job.options.begin(), job.options.end());  // for a repeated option, ddprun uses the last value
  words.insert(words.end(), job.program.begin(), job.program.end());
  return words;
}

std::string command_lines(const KubernetesJob& job) {
  std::string lines;
  for (const std::string& word : command_of(job)) lines += item(yaml_text(container_word(word)) + "\n");
  return section("command", lines);
}

std::string environment_lines(const KubernetesJob& job) {
  const auto variable = [](std::string_view name, std::string_view value) {
    return item(entry("name", name) + entry("value", value));
  };
  return section("env", "# the agents' records (identity, votes) outlive a pod\n" +
                            variable("XDG_STATE_HOME", mount_folder(job) + "/state") +
                            "# this user has no entry in the image's /etc/passwd\n" + variable("HOME", "/tmp") +
                            variable("USER", "ddprun"));
}

std::string resource_lines(const KubernetesJob& job) {
  const std::string gpus = job.gpus > 0 ? "nvidia.com/gpu: " + number(job.gpus) + "\n" : "";
  return section("requests", entry("cpu", job.cpus) + entry("memory", job.memory) + gpus) +
         section("limits", entry("memory", job.memory) + gpus);
}

std::string container_security() {
  return section("securityContext", "allowPrivilegeEscalation: false\n" + section("capabilities", section("drop", "- ALL\n")));
}

std::string mount_lines(const KubernetesJob& job) {
  const auto mount = [](std::string_view name, std::string_view path, bool read_only) {
    return item(entry("name", name) + entry("mountPath", path) + (read_only ? "readOnly: true\n" : ""));
  };
  return section("volumeMounts", mount("token", kTokenFolder, true) + mount("runs", mount_folder(job), false) +
                                     (job.config_text.empty() ? "" : mount("config", kConfigFolder, true)) +
                                     mount("shm", "/dev/shm", false));
}

std::string volume_lines(const KubernetesJob& job) {
  const auto volume = [](std::string_view name, const std::string& source) { return item(entry("name", name) + source); };
  return section(
      "volumes",
      volume("token", section("secret", entry("secretName", job.secret) +
                                            "defaultMode: 0440              # readable by root and by the pod's fsGroup\n")) +
          volume("runs", section("persistentVolumeClaim", entry("claimName", claim_name(job)))) +
          (job.config_text.empty() ? "" : volume("config", section("configMap", entry("name", config_name(job))))) +
          volume("shm", section("emptyDir", "medium: Memory                 # for NCCL and data loaders; counts as memory\n" +
                                                entry("sizeLimit", job.shared_memory))));
}

std::string container_lines(const KubernetesJob& job) {
  if (job.kind == Kind::kRuntime) {
    // The TrainJob replaces the image and adds everything else. Kubeflow requires the name "node".
    return item(entry("name", "node") + entry("image", "ddprun") + container_security());
  }
  return item(entry("name", "node") + entry("image", job.image) + command_lines(job) + environment_lines(job) +
              section("resources", resource_lines(job)) + container_security() + mount_lines(job));
}

// ---- the pod ----

std::string toleration(std::string_view key, std::string_view value) {
  return item(entry("key", key) + (value.empty() ? "operator: Exists\n" : "operator: Equal\n" + entry("value", value)) +
              "effect: NoSchedule\n");
}

std::string placement_lines(const KubernetesJob& job) {
  std::string tolerations;
  if (job.gpus > 0 || job.kind == Kind::kRuntime) tolerations += toleration("nvidia.com/gpu", "");
  if (job.capacity == Capacity::kReserved) return tolerations.empty() ? "" : section("tolerations", tolerations);
  tolerations += toleration("cloud.google.com/gke-spot", "true") + toleration("kubernetes.azure.com/scalesetpriority", "spot");
  const auto preferred = [](std::string_view key, std::string_view value) {
    const std::string expression =
        item(entry("key", key) + "operator: In\n" + section("values", item(yaml_text(value) + "\n")));
    return item("weight: 1\n" + section("preference", section("matchExpressions", expression)));
  };
  const std::string terms =
      preferred("cloud.google.com/gke-spot", "true") + preferred("eks.amazonaws.com/capacityType", "SPOT") +
      preferred("karpenter.sh/capacity-type", "spot") + preferred("kubernetes.azure.com/scalesetpriority", "spot");
  return section("tolerations", tolerations) + "# prefer spot machines on Google Cloud, AWS, Karpenter and Azure\n" +
         section("affinity", section("nodeAffinity", section("preferredDuringSchedulingIgnoredDuringExecution", terms)));
}

std::string pod_spec(const KubernetesJob& job) {
  const std::string user = number(kUser);
  return std::string("restartPolicy: Never               # podFailurePolicy needs it\n") +
         (job.kind == Kind::kJob ? entry("subdomain", job.name) : "") +
         "terminationGracePeriodSeconds: " + number(job.grace_s) + "\n" +
         "automountServiceAccountToken: false\n"
         "enableServiceLinks: false          # a Service named ddprun-x would define DDPRUN_X_... variables, which ddprun "
         "reads "
         "as options\n" +
         section("securityContext", "runAsNonRoot: true\nrunAsUser: " + user + "\nrunAsGroup: " + user + "\nfsGroup: " + user +
                                        "\nfsGroupChangePolicy: OnRootMismatch\n" +
                                        section("seccompProfile", "type: RuntimeDefault\n")) +
         placement_lines(job) + section("containers", container_lines(job)) +
         (job.kind == Kind::kRuntime ? "" : volume_lines(job));
}

// ---- the Job ----

// docs/exit-codes.md explains the exit codes. The first rule that matches decides. Codes without a rule count towards
// backoffLimit. The rule for evictions comes first, so an evicted pod is replaced whatever its exit code is. If the cause of
// the code persists, the replacement fails too, and the other rules apply to it.
std::string failure_policy() {
  const auto codes = [](std::string_view values) {
    return section("onExitCodes", "operator: In\nvalues: [" + std::string(values) + "]\n");
  };
  return section(
      "podFailurePolicy",
      section("rules", item("action: Ignore                 # evicted or preempted: start the pod again\n" +
                            section("onPodConditions", item("type: DisruptionTarget\nstatus: \"True\"\n"))) +
                           item("action: Ignore                 # saved, or cut off from the job: start the pod again\n" +
                                codes("85, 86, 143")) +
                           item("action: FailJob                # it would fail again\n" + codes("2, 83, 84, 87, 88"))));
}

std::string job_spec(const KubernetesJob& job) {
  std::string lines = "completionMode: Indexed            # the index is the node's rank\n";
  int failures = kFailuresOfTrainJob;
  if (job.kind != Kind::kRuntime) {  // a TrainJob sets completions and parallelism from numNodes
    lines += "completions: " + number(job.max_nodes) + "\nparallelism: " + number(job.max_nodes) + "\n";
    failures = kFailuresPerNode * job.max_nodes;
  }
  return lines + "backoffLimit: " + number(failures) +
         "                   # number of pod failures; evictions do not count\n"
         "podReplacementPolicy: Failed       # two pods never have the same name\n" +
         section("successPolicy",
                 section("rules", "- succeededCount: 1              # exit code 0 means that the whole job is done\n")) +
         failure_policy() + section("template", section("spec", pod_spec(job)));
}

std::string metadata(const KubernetesJob& job, std::string_view name, std::string_view more = "") {
  return section("metadata",
                 entry("name", name) + (job.name_space.empty() ? "" : entry("namespace", job.name_space)) + std::string(more));
}

// Returns the label for Kueue, and for an elastic Job also the annotations for partial admission: if the quota is too small
// for all pods, the Job starts with fewer pods. Kueue has no such annotation for other kinds.
std::string queue_lines(const KubernetesJob& job) {
  if (job.queue.empty()) return "";
  std::string lines = section("labels", entry("kueue.x-k8s.io/queue-name", job.queue));
  if (job.kind == Kind::kJob && is_elastic(job)) {
    lines += section("annotations", entry("kueue.x-k8s.io/job-min-parallelism", number(job.min_nodes)) +
                                        entry("kueue.x-k8s.io/job-completions-equal-parallelism", "true"));
  }
  return lines;
}

std::string job_document(const KubernetesJob& job) {
  return "apiVersion: batch/v1\nkind: Job\n" + metadata(job, job.name, queue_lines(job)) + section("spec", job_spec(job));
}

// ---- JobSet and TrainJob ----

// `labels` are the labels of the job template.
std::string jobset_spec(const KubernetesJob& job, std::string_view labels = "") {
  const std::string job_template =
      (labels.empty() ? "" : section("metadata", section("labels", labels))) + section("spec", job_spec(job));
  return section("network",
                 "enableDNSHostnames: true\npublishNotReadyAddresses: true     # the pods find each other while they start\n") +
         section("failurePolicy",
                 "maxRestarts: 0                     # the Job replaces single pods; the others keep running\n") +
         section("replicatedJobs", item(entry("name", "node") + "replicas: 1\n" + section("template", job_template)));
}

std::string jobset_document(const KubernetesJob& job) {
  return "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\n" + metadata(job, job.name, queue_lines(job)) +
         section("spec", jobset_spec(job));
}

std::string runtime_document(const KubernetesJob& job) {
  const std::string jobset = jobset_spec(job, entry("trainer.kubeflow.org/trainjob-ancestor-step", "trainer"));
  return "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: ClusterTrainingRuntime\n" +
         section("metadata", entry("name", runtime_name(job.capacity)) +
                                 section("labels", entry("trainer.kubeflow.org/framework", "torch"))) +
         section("spec", section("mlPolicy", "numNodes: 1                        # the TrainJob sets it\n" +
                                                 section("torch", "numProcPerNode: auto\n")) +
                             section("template", section("spec", jobset)));
}

std::string trainjob_document(const KubernetesJob& job) {
  const std::string trainer = entry("image", job.image) + "numNodes: " + number(job.max_nodes) + "\n" + command_lines(job) +
                              environment_lines(job) + section("resourcesPerNode", resource_lines(job));
  const std::string pod = volume_lines(job) + section("containers", item(entry("name", "node") + mount_lines(job)));
  const std::string replicated_job =
      item(entry("name", "node") + section("template", section("spec", section("template", section("spec", pod)))));
  const std::string patch =
      item(entry("manager", "ddprun") +
           section("trainingRuntimeSpec", section("template", section("spec", section("replicatedJobs", replicated_job)))));
  return "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\n" + metadata(job, job.name, queue_lines(job)) +
         section("spec", section("runtimeRef", entry("name", runtime_name(job.capacity))) + section("trainer", trainer) +
                             section("runtimePatches", patch));
}

// ---- the objects that a job needs ----

std::string pod_label(const KubernetesJob& job) {
  return job.kind == Kind::kJob ? entry("batch.kubernetes.io/job-name", job.name)
                                : entry("jobset.sigs.k8s.io/jobset-name", job.name);
}

std::string service_document(const KubernetesJob& job) {
  return "apiVersion: v1\nkind: Service\n" + metadata(job, job.name) +
         section("spec",
                 "clusterIP: None                    # headless: each pod has a name\n"
                 "publishNotReadyAddresses: true     # also while it starts\n" +
                     section("selector", pod_label(job)));
}

std::string network_policy_document(const KubernetesJob& job) {
  const std::string selector = section("podSelector", section("matchLabels", pod_label(job)));
  return "# PyTorch's connections are not encrypted: only the pods of this job may connect to each other.\n"
         "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n" +
         metadata(job, job.name) +
         section("spec", selector + "policyTypes: [Ingress]\n" + section("ingress", item(section("from", item(selector)))));
}

std::string claim_document(const KubernetesJob& job) {
  return "apiVersion: v1\nkind: PersistentVolumeClaim\n" + metadata(job, claim_name(job)) +
         section("spec", "accessModes: [ReadWriteMany]       # all pods write to it\n" +
                             section("resources", section("requests", entry("storage", job.storage))));
}

// Returns the ConfigMap with the train.json. A YAML literal block is readable, so it is used unless the text has characters
// that a block cannot contain.
std::string config_document(const KubernetesJob& job) {
  std::string_view text = job.config_text;
  while (text.ends_with('\n')) text.remove_suffix(1);
  const auto needs_escape = [](char c) { return (c < ' ' && c != '\n' && c != '\t' && c >= 0) || c == 0x7f; };
  const bool is_ascii = std::ranges::all_of(text, [](char c) { return c >= 0; });
  const bool literal = is_ascii && !text.empty() && text[0] > ' ' && std::ranges::none_of(text, needs_escape);
  const std::string file = job.program.front().substr(std::string_view(kConfigFolder).size() + 1);
  const std::string value = literal ? "|\n" + indented(std::string(text) + "\n", 2) : yaml_text(job.config_text) + "\n";
  return "apiVersion: v1\nkind: ConfigMap\n" + metadata(job, config_name(job)) +
         section("data", yaml_text(file) + ": " + value);
}

// ---- the comment at the top ----

struct Commands {
  std::string kubectl;  // the kubectl command with the namespace
  std::string object;   // "job train"
};

Commands commands_of(const KubernetesJob& job) {
  const std::string kind = job.kind == Kind::kJob ? "job" : job.kind == Kind::kJobSet ? "jobset" : "trainjob";
  return {job.name_space.empty() ? "kubectl" : "kubectl -n " + job.name_space, kind + " " + job.name};
}

std::string header(const KubernetesJob& job) {
  std::string text = "# Written by: " + yaml_comment(job.made_by) + "\n";
  if (job.kind == Kind::kRuntime) {
    return text + "# An administrator applies this runtime once per cluster. TrainJobs of ddprun refer to it by its name.\n";
  }
  const auto [kubectl, object] = commands_of(job);
  const auto patch = [&](const std::string& what, const std::string& field) {
    return kubectl + " patch " + what + " --type merge --patch '{\"spec\":{" + field + "}}'\n";
  };
  text += "#\n# Once:    ddprun token --new job.token\n#          " + kubectl + " create secret generic " + job.secret +
          " --from-file=token=job.token\n";
  if (job.kind == Kind::kTrainJob) {
    const std::string spot = job.capacity == Capacity::kSpot ? " --spot" : "";
    text += "#          ddprun submit --k8s --kind runtime" + spot + "    (an administrator, once in a cluster)\n";
  }
  text += "# Start:   " + kubectl + " apply -f " + job.name + ".yaml\n# Watch:   " + kubectl + " logs -f " + pods_of(job) +
          "\n#          " + kubectl + " exec " + pods_of(job) + " -- ddprun status\n";
  if (job.queue.empty()) {
    text += "# Stop:    " + patch(object, "\"suspend\":true") + "# Resume:  " + patch(object, "\"suspend\":false");
  } else {
    text += "# Stop:    " + kubectl + " get workloads    (Kueue's object of this job)\n#          " +
            patch("workload NAME", "\"active\":false") + "# Resume:  " + patch("workload NAME", "\"active\":true");
  }
  text += "# Delete:  " + kubectl + " delete " + object + "\n";
  if (job.claim.empty()) {
    text += "#          Never use kubectl delete -f with this file: it would also delete the volume with the checkpoints.\n";
  }
  return text;
}

}  // namespace

std::string runtime_name(Capacity capacity) {
  return capacity == Capacity::kSpot ? "ddprun-spot" : "ddprun";
}

std::string pods_of(const KubernetesJob& job) {
  return "job/" + job.name + (job.kind == Kind::kJob ? "" : "-node-0");
}

std::string kubernetes_manifests(const KubernetesJob& job) {
  // The empty line separates the header from the comment with which a document may start.
  if (job.kind == Kind::kRuntime) return header(job) + "\n" + runtime_document(job);
  std::vector<std::string> documents;
  if (job.kind == Kind::kJob) documents.push_back(service_document(job));
  documents.push_back(network_policy_document(job));
  if (job.claim.empty()) documents.push_back(claim_document(job));
  if (!job.config_text.empty()) documents.push_back(config_document(job));
  documents.push_back(job.kind == Kind::kJob      ? job_document(job)
                      : job.kind == Kind::kJobSet ? jobset_document(job)
                                                  : trainjob_document(job));
  std::string text = header(job) + "\n" + documents.front();
  for (std::size_t i = 1; i < documents.size(); ++i) text += "---\n" + documents[i];
  return text;
}

}  // namespace ddprun
