// Tests the options of `ddprun submit --k8s`: their defaults, the values that are refused, and the command of the pods.
#include "launcher/submit/kubernetes/kubernetes_request.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace ddprun::test {
namespace {

using Options = std::map<std::string, std::string, std::less<>>;

constexpr const char* kConfig = "{\"name\": \"x\"}\n";

KubernetesJob job_of(const Options& options, const std::vector<std::string>& words = {"train.py"}) {
  Options given{{"--image", "train:1"}};
  for (const auto& [name, value] : options) given[name] = value;
  return kubernetes_job({.option = [&](std::string_view name) -> std::optional<std::string> {
                           const auto found = given.find(name);
                           return found == given.end() ? std::optional<std::string>() : found->second;
                         },
                         .words = words,
                         .read_file = [](const std::string& file) -> std::optional<std::string> {
                           return file == "configs/train.json" ? std::optional<std::string>(kConfig) : std::nullopt;
                         }});
}

std::string complaint(const Options& options, const std::vector<std::string>& words = {"train.py"}) {
  try {
    job_of(options, words);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(KubernetesRequest, DefaultsFollowTheGpus) {
  const KubernetesJob job = job_of({{"--gpus", "8"}, {"--nodes", "4"}}, {"exp/Train_2.py", "--lr", "0.1"});
  EXPECT_EQ(job.name, "train-2");
  EXPECT_EQ(job.memory, "256Gi");
  EXPECT_EQ(job.shared_memory, "64Gi");
  EXPECT_EQ(job.cpus, "32");
  EXPECT_EQ(job.run_dir, "/runs/train-2");
  EXPECT_EQ(job.secret, "train-2-token");
  EXPECT_EQ(job.grace_s, 60);
  EXPECT_EQ(job.min_nodes, 4);
  EXPECT_EQ(job.max_nodes, 4);
  EXPECT_EQ(job.made_by, "ddprun submit --k8s --image train:1 --nodes 4 --gpus 8 exp/Train_2.py --lr 0.1");
}

TEST(KubernetesRequest, SharedMemoryIsAQuarterOfTheMemory) {
  EXPECT_EQ(job_of({{"--memory", "10Gi"}}).shared_memory, "2560Mi");
  EXPECT_EQ(job_of({{"--memory", "16G"}}).shared_memory, "3815Mi");
  EXPECT_EQ(job_of({}).shared_memory, "2Gi");
}

TEST(KubernetesRequest, SpotAndElastic) {
  const KubernetesJob job = job_of({{"--spot", ""}, {"--nodes", "2:4"}});
  EXPECT_EQ(job.grace_s, 25);
  EXPECT_EQ(job.min_nodes, 2);
  EXPECT_EQ(job.max_nodes, 4);
  EXPECT_NE(job.made_by.find(" --spot "), std::string::npos);
}

TEST(KubernetesRequest, OptionsOfDdprunPrecedeTheProgram) {
  const std::vector<std::string> words{"--hang-timeout", "60", "-m", "pkg.train", "--lr", "0.1"};
  const KubernetesJob job = job_of({{"--name", "exp"}}, words);
  EXPECT_EQ(job.options, (std::vector<std::string>{"--hang-timeout", "60", "-m"}));
  EXPECT_EQ(job.program, (std::vector<std::string>{"pkg.train", "--lr", "0.1"}));
  EXPECT_NE(job.made_by.find(" -- --hang-timeout 60 "), std::string::npos) << job.made_by;
}

TEST(KubernetesRequest, AConfigOfThisMachineBecomesPartOfTheManifests) {
  const KubernetesJob here = job_of({}, {"configs/train.json", "epochs=2"});
  EXPECT_EQ(here.config_text, kConfig);
  EXPECT_EQ(here.program, (std::vector<std::string>{"/config/train.json", "epochs=2"}));
  const KubernetesJob in_image = job_of({}, {"/app/train.json"});
  EXPECT_EQ(in_image.config_text, "");
  EXPECT_EQ(in_image.program, (std::vector<std::string>{"/app/train.json"}));
  EXPECT_NE(complaint({}, {"missing.json"}).find("give its absolute path"), std::string::npos);
  EXPECT_EQ(job_of({}, {"train.py", "other.json"}).config_text, "");  // an argument of the script
}

struct Refused {
  const char *option, *value, *why;
};

class RefusedOptions : public testing::TestWithParam<Refused> {};

TEST_P(RefusedOptions, AreExplained) {
  const std::string message = complaint({{GetParam().option, GetParam().value}});
  EXPECT_TRUE(message.starts_with(GetParam().option)) << message;
  EXPECT_NE(message.find(GetParam().why), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    KubernetesRequest, RefusedOptions,
    testing::Values(
        Refused{"--kind", "deployment", "job, jobset, trainjob or runtime"}, Refused{"--nodes", "4:2", "MIN:MAX"},
        Refused{"--nodes", "0", "MIN:MAX"}, Refused{"--nodes", "2:", "MIN:MAX"}, Refused{"--nodes", "20000", "10000"},
        Refused{"--gpus", "-1", "0 to 64"}, Refused{"--memory", "64GB", "quantity"}, Refused{"--memory", "0", "quantity"},
        Refused{"--cpus", "four", "quantity"}, Refused{"--shm", "8Gi", "counts towards the memory"},
        Refused{"--name", "Train", "lower-case"}, Refused{"--name", "1a", "starting with a letter"},
        Refused{"--name", "a-", "lower-case"}, Refused{"--name", "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrs", "44"},
        Refused{"--secret", "a/b", "name of a Kubernetes object"}, Refused{"--namespace", "A", "name of a Kubernetes object"},
        Refused{"--queue", "q\n", "name of a Kubernetes object"}, Refused{"--claim", "-a", "name of a Kubernetes object"},
        Refused{"--image", "", "container image"}, Refused{"--image", "a b", "container image"},
        Refused{"--run-dir", "runs/x", "absolute path"}, Refused{"--run-dir", "/x", "absolute path"},
        Refused{"--run-dir", "/usr/x", "parent folder"}, Refused{"--run-dir", "/dev/shm/x", "parent folder"},
        Refused{"--run-dir", "/a/../x", "absolute path"}, Refused{"--grace", "5", "10 to 86400"}));

TEST(KubernetesRequest, OptionsThatTheManifestsSetAreRefused) {
  EXPECT_NE(complaint({}, {"--nnodes", "2", "train.py"}).find("use --nodes"), std::string::npos);
  EXPECT_NE(complaint({}, {"--token-file", "x", "train.py"}).find("use --secret"), std::string::npos);
  EXPECT_NE(complaint({}, {"--shutdown-timeout", "9", "train.py"}).find("use --grace"), std::string::npos);
  EXPECT_NE(complaint({}, {"--run-dir", "/x", "train.py"}).find("--run-dir before the program"), std::string::npos);
  EXPECT_NE(complaint({}, {"--master-addr", "h", "train.py"}).find("from Kubernetes"), std::string::npos);
}

TEST(KubernetesRequest, CommandsThatKubernetesCannotRunAreRefused) {
  EXPECT_NE(complaint({}, {}).find("nothing to run"), std::string::npos);
  EXPECT_NE(complaint({}, {"train.py", "\xff"}).find("UTF-8"), std::string::npos);
  EXPECT_NE(complaint({}, std::vector<std::string>(101, "x")).find("at most 100"), std::string::npos);
  EXPECT_NE(complaint({}, {"--max-restart", "x", "--nope"}).find("nope"), std::string::npos);
  EXPECT_NE(complaint({{"--kind", "runtime"}}).find("takes no program"), std::string::npos);
}

TEST(KubernetesManifests, NamesDifferByKind) {
  EXPECT_EQ(pods_of(job_of({{"--kind", "job"}})), "job/train");
  EXPECT_EQ(pods_of(job_of({{"--kind", "jobset"}})), "job/train-node-0");
  EXPECT_EQ(job_of({{"--kind", "runtime"}, {"--spot", ""}}, {}).name, "ddprun-spot");
}

TEST(KubernetesManifests, ACommandCannotAddLinesToTheComment) {
  const std::string text = kubernetes_manifests(job_of({}, {"train.py", "a\nkind: Pod\xE2\x80\xA8kind: Pod\xC2\x85kind: Pod"}));
  EXPECT_EQ(text.find("\nkind: Pod"), std::string::npos);
  EXPECT_NE(text.find(R"(- "a\nkind: Pod\u2028kind: Pod\x85kind: Pod")"), std::string::npos) << text;
}

TEST(KubernetesManifests, AnUnusualConfigIsQuoted) {
  KubernetesJob job = job_of({}, {"configs/train.json"});
  EXPECT_NE(kubernetes_manifests(job).find("  train.json: |\n    {\"name\": \"x\"}\n"), std::string::npos);
  for (const char* text : {" {}", "{\r\n}", "{\"a\": \"ü\"}"}) {
    job.config_text = text;
    EXPECT_NE(kubernetes_manifests(job).find("  train.json: \""), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace ddprun::test
