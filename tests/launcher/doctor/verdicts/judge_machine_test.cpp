// Tests the verdicts on programs, names, interfaces, limits and folders. Each row has one planted defect, and the verdict and
// remedy that a user must see. The healthy machines are a laptop, a container with default settings, and a node of a cluster.
#include <gtest/gtest.h>

#include "launcher/doctor/verdicts/judge_folders.hpp"
#include "launcher/doctor/verdicts/judge_limits.hpp"
#include "launcher/doctor/verdicts/judge_network.hpp"
#include "launcher/doctor/verdicts/judge_programs.hpp"
#include "launcher/doctor/verdicts/mounts.hpp"
#include "tests/launcher/doctor/verdicts/planted.hpp"

namespace ddprun::doctor::test {
namespace {

using Torch = PythonFacts::Torch;
constexpr std::uint64_t kGib = 1ULL << 30;

const JobNeeds kTrain{.work = Work::kTrain, .gpus = Gpus::kUnused, .workers = 2};
const JobNeeds kProgram{.work = Work::kProgram, .workers = 2};
const JobNeeds kFourNodes{.work = Work::kPython, .gpus = Gpus::kRequired, .workers = 8, .nodes = 4, .meeting_host = "node0"};

// ---- programs ----

const TrainerFacts kTrainer{.path = "/opt/ddptrain", .version = "ddptrain 0.1.0 (abc)"};
const PythonFacts kPython{.path = "/usr/bin/python3",
                          .version = "3.12.1",
                          .torch = Torch::kFound,
                          .torch_version = "2.9.0",
                          .torch_sees_a_gpu = false};

TEST(Doctor, FindsDefectsOfPrograms) {
  const auto trainer = [](auto change, const JobNeeds& needs) { return judge_trainer(with(kTrainer, change), "0.1.0", needs); };
  const auto python = [](auto change, const JobNeeds& needs) { return judge_python(with(kPython, change), needs); };
  const auto stopped = [](TrainerFacts& f) { f.problem = "libtorch.so: cannot open shared object file"; };
  expect_found({
      {"no ddptrain for a train.json", trainer([](TrainerFacts& f) { f = {}; }, kTrain), kError, "ddptrain", "not found",
       "install"},
      {"LibTorch is missing", trainer(stopped, kTrain), kError, "ddptrain", "libtorch.so", "LibTorch"},
      {"LibTorch is missing, no job", trainer(stopped, kNoJob), kWarning, "ddptrain", "does not start", "LibTorch"},
      {"another version", trainer([](TrainerFacts& f) { f.version = "ddptrain 0.0.9"; }, kTrain), kError, "ddptrain",
       "expected version 0.1.0", "same version"},
      {"no Python", python([](PythonFacts& f) { f = {}; }, kScript), kError, "python", "no Python", "PYTHON_EXEC"},
      {"Python does not start", python([](PythonFacts& f) { f.problem = "No module named 'encodings'"; }, kScript), kError,
       "python", "encodings", "repair"},
      {"no torch", python([](PythonFacts& f) { f.torch = Torch::kMissing; }, kScript), kWarning, "torch", "not installed",
       "install PyTorch"},
      {"torch does not load",
       python([](PythonFacts& f) { f.torch = Torch::kBroken, f.torch_problem = "ImportError: libcudart"; }, kScript), kError,
       "torch", "libcudart", "repair"},
      {"torch on a slow disk",
       python([](PythonFacts& f) { f.torch = Torch::kUnknown, f.torch_problem = "it did not end in 60 s"; }, kScript), kWarning,
       "torch", "60 s", "local disk"},
      {"torch for CPUs on a machine with a GPU", python([](PythonFacts& f) { f.machine_has_gpu = true; }, kScript), kWarning,
       "torch", "cannot use it", "CUDA"},
  });
}

TEST(Doctor, AcceptsMissingProgramsThatNoJobNeeds) {
  expect_healthy("no job", judge_trainer({}, "0.1.0", kNoJob));
  expect_healthy("no job", judge_python({}, kNoJob));
  expect_healthy("train", judge_trainer(kTrainer, "0.1.0", kTrain));
  expect_healthy("quick", judge_trainer({.path = "/opt/ddptrain"}, "0.1.0", kTrain));
  expect_healthy("script", judge_python(kPython, kScript));
  EXPECT_TRUE(judge_trainer({}, "0.1.0", kScript).empty());
  EXPECT_TRUE(judge_python({}, kTrain).empty());
}

// ---- names and interfaces ----

const NameFacts kName{.name = "node0", .addresses = {"10.0.0.1"}, .is_local = true};
const InterfaceFacts kInterfaces{.interfaces = {{.name = "lo", .is_loopback = true}, {.name = "eth0"}, {.name = "ib0"}}};

TEST(Doctor, FindsDefectsOfNames) {
  const auto own = [](const std::vector<std::string>& addresses) {
    return judge_host_name({.name = "node1", .addresses = addresses}, std::nullopt, kFourNodes);
  };
  const auto meeting = [](auto change, const JobNeeds& needs) { return judge_meeting_host(with(kName, change), needs); };
  const JobNeeds first = with(kFourNodes, [](JobNeeds& n) { n.is_first = true; });
  const JobNeeds impatient = with(kFourNodes, [](JobNeeds& n) { n.join_timeout = std::chrono::seconds(30); });
  expect_found({
      {"Debian's 127.0.1.1", own({"127.0.1.1"}), kWarning, "host-name", "127.0.1.1", "--interface"},
      {"unknown host name", own({}), kWarning, "host-name", "has no address", "/etc/hosts"},
      {"MASTER_ADDR of a pod that has not started", meeting([](NameFacts& f) { f.addresses.clear(); }, kFourNodes), kWarning,
       "master-address", "node0, does not resolve yet", "a start waits up to 600 s"},
      {"another limit", meeting([](NameFacts& f) { f.addresses.clear(); }, impatient), kWarning, "master-address",
       "does not resolve yet", "up to 30 s for the first node (--rdzv-conf join_timeout=SECONDS)"},
      {"an invalid MASTER_ADDR", meeting([](NameFacts& f) { f = {.name = "10.0.0.300"}; }, kFourNodes), kError,
       "master-address", "10.0.0.300, never resolves", "PET_MASTER_ADDR"},
      {"localhost as MASTER_ADDR",
       meeting(
           [](NameFacts& f) {
             f.addresses = {"127.0.0.1", "::1"};
           },
           kFourNodes),
       kWarning, "master-address", "loopback", "network"},
      {"rank 0 on another node", meeting([](NameFacts& f) { f.is_local = false; }, first), kWarning, "master-address",
       "does not belong", "rank 0"},
  });
}

TEST(Doctor, KnowsNamesThatNeverResolve) {
  for (const char* name : {"node0", "train-0.train", "train-node-0-0.train.team-a.svc.cluster.local", "a_b.example", "node0.",
                           "0x10.example", "m\u00fcnchen.example", "1.2.3.4a"}) {
    EXPECT_FALSE(can_never_resolve(name)) << name;
  }
  for (const std::string& name : {std::string("no-such-host.invalid"), std::string("10.0.0.300"), std::string("10.0.0"),
                                  std::string("a..b"), std::string(".a"), std::string("a b"), std::string("-a.b"),
                                  std::string("a-.b"), std::string("http://a"), std::string("."), std::string(64, 'a'),
                                  std::string(64, 'a') + ".b", std::string(127, 'a') + "." + std::string(127, 'b')}) {
    EXPECT_TRUE(can_never_resolve(name)) << name;
  }
}

TEST(Doctor, AcceptsALoopbackHostNameIfItIsNotUsed) {
  const NameFacts loopback{.name = "laptop", .addresses = {"127.0.1.1"}};
  expect_healthy("one node", judge_host_name(loopback, std::nullopt, kScript));
  expect_healthy("offline laptop", judge_host_name({.name = "laptop"}, std::nullopt, kNoJob));
  expect_healthy("variable", judge_host_name(loopback, "eth0", kFourNodes));
  expect_healthy("option", judge_host_name(loopback, std::nullopt, with(kFourNodes, [](auto& n) { n.interface = "eth0"; })));
  expect_healthy("two addresses",
                 judge_host_name({.name = "a", .addresses = {"127.0.1.1", "10.0.0.1"}}, std::nullopt, kFourNodes));
  expect_healthy("first node", judge_meeting_host(kName, with(kFourNodes, [](auto& n) { n.is_first = true; })));
  expect_healthy("another node", judge_meeting_host(with(kName, [](auto& f) { f.is_local = false; }), kFourNodes));
}

TEST(Doctor, FindsDefectsOfInterfaces) {
  const auto judged = [](auto change, const JobNeeds& needs) { return judge_interfaces(with(kInterfaces, change), needs); };
  const auto one_down = [](InterfaceFacts& f) { f.interfaces[1].is_up = false; };
  expect_found({
      {"unknown interface for Gloo", judged([](auto& f) { f.gloo = "eth7"; }, kTrain), kError, "interface", "no interface eth7",
       "found: lo, eth0, ib0"},
      {"one of two is unknown", judged([](auto& f) { f.gloo = "eth0,eth7"; }, kTrain), kError, "interface", "eth7", "GLOO"},
      {"interface is down", judged([&](auto& f) { f.gloo = "eth0", one_down(f); }, kTrain), kError, "interface", "is down",
       "eth0 (down)"},
      {"interface without address", judged([](auto& f) { f.gloo = "ib0", f.interfaces[2].has_address = false; }, kTrain),
       kError, "interface", "has no address", "GLOO_SOCKET_IFNAME"},
      {"loopback on several nodes", judged([](auto& f) { f.gloo = "lo"; }, kFourNodes), kError, "interface", "loopback",
       "GLOO"},
      {"NCCL without an interface", judged([](auto& f) { f.nccl = "bond"; }, kFourNodes), kError, "interface",
       "NCCL_SOCKET_IFNAME=bond", "NCCL_SOCKET_IFNAME"},
      {"the same without GPUs", judged([](auto& f) { f.nccl = "bond"; }, kScript), kWarning, "interface", "no interface",
       "NCCL"},
      {"NCCL on a lost link", judged([&](auto& f) { f.nccl = "=eth0", one_down(f); }, kFourNodes), kError, "interface", "down",
       "eth0 (down)"},
      {"NCCL on loopback", judged([](auto& f) { f.nccl = "lo"; }, kFourNodes), kError, "interface", "loopback", "NCCL"},
      {"no network at all", judged([](auto& f) { f.interfaces.resize(1); }, kFourNodes), kError, "interface",
       "no network interface is up", "ip addr"},
      {"wrong HCA", judged([](auto& f) { f.infiniband = {{.name = "mlx5_0"}}, f.nccl_hca = "mlx4"; }, kFourNodes), kWarning,
       "infiniband", "NCCL_IB_HCA=mlx4", "remove"},
      {"no active port", judged([](auto& f) { f.infiniband = {{.name = "mlx5_0", .active_ports = 0}}; }, kFourNodes), kWarning,
       "infiniband", "no port", "ibstat"},
  });
}

TEST(Doctor, AcceptsHealthyInterfaces) {
  expect_healthy("laptop without a network", judge_interfaces({.interfaces = {{.name = "lo", .is_loopback = true}}}, kScript));
  for (const char* selection : {"eth", "=ib0", "^docker,veth", "^=lo", "ib0,eth0"}) {
    expect_healthy(selection, judge_interfaces(with(kInterfaces, [&](auto& f) { f.nccl = selection; }), kFourNodes));
  }
  expect_healthy("loopback on one node", judge_interfaces(with(kInterfaces, [](auto& f) { f.gloo = "lo"; }), kScript));
  expect_healthy("ports", judge_interfaces(with(kInterfaces,
                                                [](auto& f) {
                                                  f.infiniband = {{.name = "mlx5_0"}, {.name = "mlx5_1", .active_ports = 0}};
                                                  f.nccl_hca = "=mlx5_0:1";
                                                }),
                                           kFourNodes));
}

TEST(Doctor, SelectsInterfacesAsNcclDoes) {
  EXPECT_TRUE(nccl_selects("eth", "eth0"));
  EXPECT_FALSE(nccl_selects("=eth", "eth0"));
  EXPECT_FALSE(nccl_selects("^eth", "eth0"));
  EXPECT_TRUE(nccl_selects("^=eth", "eth0"));
  EXPECT_TRUE(nccl_selects("mlx5_0:1", "mlx5_0"));
  EXPECT_FALSE(nccl_selects("", "eth0"));
}

// ---- limits ----

const LimitFacts kLimits{.open_files = 1024, .open_files_hard = 524288, .locked_bytes = 8 * kMebibyte};
const LimitFacts kClusterLimits{.open_files = 65536, .open_files_hard = 65536, .has_infiniband = true};

TEST(Doctor, FindsDefectsOfLimits) {
  const auto judged = [](auto change, const JobNeeds& needs) { return judge_limits(with(kLimits, change), needs); };
  const auto locked = [](std::uint64_t bytes, const JobNeeds& needs) {
    return judge_limits(with(kClusterLimits, [&](auto& f) { f.locked_bytes = bytes; }), needs);
  };
  expect_found({
      {"hard limit of files", judged([](auto& f) { f.open_files = f.open_files_hard = 64; }, kTrain), kError, "open-files",
       "hard limit is 64", "LimitNOFILE"},
      {"soft limit of files", judged([](auto& f) { f.open_files = 256; }, kTrain), kWarning, "open-files", "soft limit is 256",
       "ulimit -n 65536"},
      {"files for many workers",
       judged([](auto& f) { f.open_files_hard = 1024; }, with(kTrain, [](auto& n) { n.workers = 64; })), kError, "open-files",
       "64 workers", "nofile"},
      {"little locked memory", locked(64 << 10, kFourNodes), kError, "locked-memory", "64 KiB", "memlock=-1"},
      {"less than usual", locked(128 * kMebibyte, kFourNodes), kWarning, "locked-memory", "128 MiB", "unlimited"},
      {"locked memory on one node", locked(64 << 10, kScript), kWarning, "locked-memory", "InfiniBand", "LimitMEMLOCK"},
      {"pids.max is reached", judged([](auto& f) { f.processes_left = 10; }, kTrain), kError, "processes", "10 more",
       "--pids-limit"},
      {"pids.max is low", judged([](auto& f) { f.processes_left = 100; }, kTrain), kWarning, "processes", "100 more",
       "TasksMax"},
      {"ulimit -u", judged([](auto& f) { f.user_processes = 20; }, kTrain), kError, "processes", "user's limit is 20",
       "ulimit -u"},
      {"memory of the cgroup", judged([](auto& f) { f.memory_bytes = 200 * kMebibyte; }, kTrain), kError, "memory", "200 MiB",
       "--mem"},
      {"memory is tight", judged([](auto& f) { f.memory_bytes = 800 * kMebibyte; }, kTrain), kWarning, "memory",
       "expected at least", "fewer workers"},
      {"a small program", judged([](auto& f) { f.memory_bytes = 100 * kMebibyte; }, kProgram), kWarning, "memory", "100 MiB",
       "raise"},
  });
}

TEST(Doctor, FindsDefectsOfCpusMemoryAndClock) {
  const auto cpus = [](const CpuFacts& facts) { return judge_cpus(facts, kTrain); };
  const SharedMemoryFacts healthy{.total_bytes = 8 * kGib, .free_bytes = 8 * kGib};
  const auto shared = [&](auto change, const JobNeeds& needs) { return judge_shared_memory(with(healthy, change), needs); };
  const auto small = [](SharedMemoryFacts& f) { f.total_bytes = f.free_bytes = 64 * kMebibyte; };
  const auto full = [](SharedMemoryFacts& f) { f.free_bytes = kMebibyte; };
  expect_found({
      {"half a CPU", cpus({.affinity = 8, .quota = 0.5}), kWarning, "cpus", "less than one CPU", "at least one CPU"},
      {"no number of threads", cpus({.affinity = 8, .omp_threads = "auto"}), kWarning, "threads", "auto", "remove"},
      {"zero threads", cpus({.affinity = 8, .omp_threads = "0"}), kWarning, "threads", "not a number", "remove"},
      {"too many threads", cpus({.affinity = 8, .omp_threads = "16"}), kWarning, "threads", "only 8", "OMP_NUM_THREADS to 4"},
      {"too many for the quota", cpus({.affinity = 64, .quota = 2, .omp_threads = "8"}), kWarning, "threads", "only 2", "to 1"},
      {"small /dev/shm", shared(small, kScript), kWarning, "shared-memory", "64 MiB", "--shm-size"},
      {"full /dev/shm", shared(full, kScript), kError, "shared-memory", "1 MiB free", "emptyDir"},
      {"full /dev/shm, NCCL", shared(full, {.work = Work::kTrain, .gpus = Gpus::kRequired, .workers = 2}), kError,
       "shared-memory", "free", "enlarge"},
      {"full /dev/shm, not used", shared(full, kTrain), kWarning, "shared-memory", "free", "enlarge"},
      {"no /dev/shm", shared([](auto& f) { f.exists = false; }, kScript), kError, "shared-memory", "does not exist", "enlarge"},
      {"read-only /dev/shm", shared([](auto& f) { f.is_writable = false; }, kScript), kError, "shared-memory", "not writable",
       "enlarge"},
      {"clock without a battery", judge_clock({.unix_seconds = 86400}, kTrain), kWarning, "clock", "before 2025",
       "set the clock"},
      {"the same on several nodes", judge_clock({.unix_seconds = 86400}, kFourNodes), kError, "clock", "2025", "certificates"},
      {"no time service", judge_clock({.unix_seconds = 1'800'000'000, .is_synchronised = false}, kFourNodes), kWarning, "clock",
       "no time service", "chrony"},
      {"no debugger at all", judge_tracing({.yama_scope = 3, .may_trace_all = true}), kWarning, "tracing", "is 3", "sysctl"},
      {"debugger for root only", judge_tracing({.yama_scope = 2}), kWarning, "tracing", "is 2", "CAP_SYS_PTRACE"},
  });
}

TEST(Doctor, AcceptsHealthyLimits) {
  expect_healthy("laptop", judge_limits(kLimits, kScript));
  expect_healthy("container", judge_limits({.open_files = 1048576,
                                            .open_files_hard = 1048576,
                                            .locked_bytes = 8 * kMebibyte,
                                            .processes_left = 4000,
                                            .memory_bytes = 4 * kGib},
                                           kTrain));
  expect_healthy("cluster", judge_limits(kClusterLimits, kFourNodes));
  expect_healthy(
      "root with InfiniBand",
      judge_limits(with(kClusterLimits, [](auto& f) { f.locked_bytes = 65536, f.may_lock_all = true; }), kFourNodes));
  expect_healthy("no InfiniBand", judge_limits(kLimits, with(kFourNodes, [](auto& n) { n.workers = 1; })));
  expect_healthy("quota", judge_cpus({.affinity = 8, .quota = 1, .omp_threads = "2"}, kNoJob));
  expect_healthy("nested threads", judge_cpus({.affinity = 8, .omp_threads = "4, 2"}, kTrain));
  expect_healthy("container", judge_shared_memory({.total_bytes = 64 * kMebibyte, .free_bytes = 64 * kMebibyte}, kTrain));
  expect_healthy("container, no job",
                 judge_shared_memory({.total_bytes = 64 * kMebibyte, .free_bytes = 64 * kMebibyte}, kNoJob));
  expect_healthy("virtual machine", judge_clock({.unix_seconds = 1'800'000'000, .is_synchronised = false}, kScript));
  expect_healthy("Ubuntu", judge_tracing({.yama_scope = 1}));
  expect_healthy("hardened, root", judge_tracing({.yama_scope = 2, .may_trace_all = true}));
  expect_healthy("no Yama", judge_tracing({}));
}

// ---- folders and data ----

const FolderFacts kFolder{
    .path = "/runs/a", .probed = "/runs", .free_bytes = 100 * kGib, .free_inodes = 1'000'000, .file_system = "ext4"};

TEST(Doctor, FindsDefectsOfFolders) {
  const auto run = [](auto change, const JobNeeds& needs) { return judge_run_directory(with(kFolder, change), needs); };
  const auto temporary = [](auto change) { return judge_temporary_folder(with(kFolder, change), kScript); };
  expect_found({
      {"read-only", run([](auto& f) { f.write_problem = "Read-only file system"; }, kTrain), kError, "run-directory",
       "Read-only file system", "--run-dir"},
      {"no rename", run([](auto& f) { f.rename_problem = "Operation not permitted"; }, kTrain), kError, "run-directory",
       "cannot replace", "atomic rename"},
      {"full disk", run([](auto& f) { f.free_bytes = 8 * kMebibyte; }, kTrain), kError, "run-directory", "8 MiB free",
       "free some"},
      {"nearly full", run([](auto& f) { f.free_bytes = 100 * kMebibyte; }, kTrain), kWarning, "run-directory", "100 MiB",
       "--run-dir"},
      {"nearly full, script", run([](auto& f) { f.free_bytes = 8 * kMebibyte; }, kScript), kWarning, "run-directory", "8 MiB",
       "free"},
      {"no inodes", run([](auto& f) { f.free_inodes = 0; }, kTrain), kError, "run-directory", "0 free inodes", "free some"},
      {"few inodes", run([](auto& f) { f.free_inodes = 100; }, kTrain), kWarning, "run-directory", "100 free inodes",
       "--run-dir"},
      {"in memory", run([](auto& f) { f.file_system = "tmpfs"; }, kTrain), kWarning, "run-directory", "reboot", "on a disk"},
      {"soft NFS", run([](auto& f) { f.file_system = "nfs4", f.is_soft_mount = true; }, kTrain), kWarning, "run-directory",
       "soft", "hard"},
      {"TMPDIR not writable", temporary([](auto& f) { f.write_problem = "Permission denied"; }), kError, "temporary-folder",
       "Permission denied", "TMPDIR"},
      {"TMPDIR full", temporary([](auto& f) { f.free_bytes = 100; }), kError, "temporary-folder", "0 KiB", "TMPDIR"},
      {"TMPDIR nearly full", temporary([](auto& f) { f.free_bytes = 9 * kMebibyte; }), kWarning, "temporary-folder", "9 MiB",
       "TMPDIR"},
      {"TMPDIR noexec", temporary([](auto& f) { f.forbids_programs = true; }), kWarning, "temporary-folder", "noexec",
       "TMPDIR"},
      {"TMPDIR too long", temporary([](auto& f) { f.path = "/" + std::string(90, 'x'); }), kWarning, "temporary-folder",
       "91 bytes", "shorter"},
      {"local_dir not writable", judge_local_copies(with(kFolder, [](auto& f) { f.write_problem = "Permission denied"; })),
       kError, "local-copies", "/runs: Permission denied", "checkpoint.local_dir"},
      {"local_dir nearly full", judge_local_copies(with(kFolder, [](auto& f) { f.free_bytes = 9 * kMebibyte; })), kWarning,
       "local-copies", "9 MiB", "checkpoint.local_dir"},
      {"no data", judge_data({.missing = {"data.dir: /data does not exist"}}), kError, "data", "data.dir", "key"},
      {"bad disk", judge_data({.read_problems = {"/data/a.bin cannot be read: Input/output error"}}), kError, "data",
       "Input/output error", "dmesg"},
  });
}

TEST(Doctor, AcceptsHealthyFolders) {
  expect_healthy("disk", judge_run_directory(kFolder, kTrain));
  expect_healthy("btrfs", judge_run_directory(with(kFolder, [](auto& f) { f.free_inodes.reset(); }), kTrain));
  expect_healthy("NFS", judge_run_directory(with(kFolder, [](auto& f) { f.file_system = "nfs4"; }), kFourNodes));
  expect_healthy("noexec, no script",
                 judge_temporary_folder(with(kFolder, [](auto& f) { f.forbids_programs = true; }), kTrain));
  expect_healthy("tmpfs", judge_temporary_folder(with(kFolder, [](auto& f) { f.file_system = "tmpfs"; }), kScript));
  expect_healthy("local_dir", judge_local_copies(with(kFolder, [](auto& f) { f.file_system = "tmpfs"; })));
  expect_healthy("data", judge_data({}));
  expect_healthy("data", judge_data({.files_read = 3, .bytes_read = kMebibyte, .seconds = 0.1}));
}

TEST(Doctor, FindsTheMountOfAFolder) {
  const std::string mounts =
      "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
      "30 22 0:26 / /tmp rw,nosuid,noexec - tmpfs tmpfs rw,size=1g\n"
      "31 22 0:50 / /my\\040data ro - nfs4 server:/x rw,soft,vers=4.2\n"
      "32 22 0:51 / /tmp/over rw - overlay overlay rw\n"
      "33 32 0:52 / /tmp/over rw - xfs /dev/vdb rw\n"
      "garbage\n";
  EXPECT_EQ(mount_of("/home/user", mounts).type, "ext4");
  EXPECT_EQ(mount_of("/tmpfile", mounts).type, "ext4");
  EXPECT_TRUE(mount_of("/tmp/x", mounts).has("noexec"));
  EXPECT_FALSE(mount_of("/tmp/x", mounts).has("exec"));
  EXPECT_EQ(mount_of("/my data/x", mounts).type, "nfs4");
  EXPECT_TRUE(mount_of("/my data", mounts).has("soft"));
  EXPECT_EQ(mount_of("/tmp/over", mounts).type, "xfs");  // the later mount hides the earlier one
  EXPECT_EQ(mount_of("/x", "").type, "");
}

}  // namespace
}  // namespace ddprun::doctor::test
