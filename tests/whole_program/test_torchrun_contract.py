"""Tests that ddprun is a drop-in replacement for torchrun. Each case runs under the torchrun of the installed torch and under
ddprun, and all observations must be equal, except for the differences in contract_differences.py. The cases use every option
and variable of torchrun. docs/torchrun.md describes these differences for users."""

import os
import pathlib

import contract
import contract_differences
import pytest
from contract import Case

pytestmark = pytest.mark.needs_torch_python


ARGUMENTS = ["-x", "--nnodes", "3", "--", "--standalone", "--nproc_per_node=9", "", " ", "a b", "*", "~", "'", '"', "\\", "\n", "é", "--",
             "$local_rank", "${local_rank}", "x${local_rank}y$local_rank/", "$local_rankx", "$$", "$$$$", "$$local_rank", "$", "$5",
             "${x}", "${", "$ {local_rank}", "@", "#", "%d", "--local-rank=$local_rank"]
EVERY_STREAM = {"*": ["print out", "cry err"]}
TWO_LINES = {"0": ["print apple of 0", "print pear of 0", "cry apple, of 0"], "1": ["print apple of 1", "print fig of 1", "cry pear of 1"]}


def gpus() -> bool:
    return any(pathlib.Path("/dev").glob("nvidia[0-9]*"))


STATIC = ["--master-port", "@port"]
S2 = "--master-port @port --nproc-per-node 2"

CASES = [
    # Spellings
    Case("dash spellings", "--nnodes 1 --nproc-per-node 2 --rdzv-backend static --rdzv-endpoint localhost:@port --rdzv-id my_id --rdzv-conf "
         "timeout=33 --max-restarts 2 --monitor-interval 0.05 --start-method fork --event-log-handler null --role trainer --log-dir "
         "@logs --redirects 0 --tee 0 --local-ranks-filter 0,1 --duplicate-stdout-filters a --duplicate-stderr-filters b --node-rank 0 "
         "--master-addr 127.0.0.1 --master-port 1 --local-addr localhost --signals-to-handle SIGTERM,SIGINT @script", workers=2),
    Case("underscore spellings", "--nnodes 1:1 --nproc_per_node 2 --rdzv_backend static --rdzv_endpoint localhost:@port --rdzv_id my_id "
         "--rdzv_conf timeout=33 --max_restarts 2 --monitor_interval 0.05 --start_method fork --event_log_handler null --role trainer "
         "--log_dir @logs --redirects 0 --tee 0 --local_ranks_filter 0,1 --duplicate_stdout_filters a --duplicate_stderr_filters b "
         "--node_rank 0 --master_addr 127.0.0.1 --master_port 1 --local_addr localhost --signals_to_handle SIGTERM @script", workers=2),
    Case("spellings with an equals sign", "--nproc-per-node=2 --master_port=@port --rdzv-conf=timeout=33,rank=0 --role=a=b @script", workers=2),
    Case("variables", "@script", {"PET_NNODES": "1:1", "PET_NPROC_PER_NODE": "2", "PET_RDZV_BACKEND": "static",
         "PET_RDZV_ENDPOINT": "localhost:@port", "PET_RDZV_ID": "its_id", "PET_RDZV_CONF": "timeout=33", "PET_MAX_RESTARTS": "3",
         "PET_MONITOR_INTERVAL": "0.05", "PET_START_METHOD": "spawn", "PET_EVENT_LOG_HANDLER": "null", "PET_ROLE": "its_role",
         "PET_LOG_DIR": "@logs", "PET_REDIRECTS": "1", "PET_TEE": "2", "PET_LOCAL_RANKS_FILTER": "1", "PET_NODE_RANK": "0",
         "PET_DUPLICATE_STDOUT_FILTERS": "a", "PET_DUPLICATE_STDERR_FILTERS": ">e", "PET_MASTER_ADDR": "127.0.0.1",
         "PET_MASTER_PORT": "1", "PET_LOCAL_ADDR": "localhost", "PET_SIGNALS_TO_HANDLE": "SIGTERM", "PET_STANDALONE": "0",
         "PET_MODULE": "0", "PET_NO_PYTHON": "0", "PET_RUN_PATH": "0", "PET_VIRTUAL_LOCAL_RANK": "0"}, EVERY_STREAM, workers=2),
    Case("flags as variables: standalone, module", "@module x", {"PET_STANDALONE": "1", "PET_MODULE": "1"}),
    Case("flags as variables: no-python, virtual local rank", "--master-port @port @program x", {"PET_NO_PYTHON": "2", "PET_VIRTUAL_LOCAL_RANK": "1"}),
    Case("flags as variables: run-path", "--master-port @port @script x", {"PET_RUN_PATH": "1"}),
    Case("the command line beats variables", "--nproc-per-node 1 --role mine --master-port @port @script",
         {"PET_NPROC_PER_NODE": "3", "PET_ROLE": "theirs", "PET_MASTER_PORT": "1"}),
    Case("an empty variable", "--master-port @port @script", {"PET_ROLE": "", "PET_RDZV_CONF": "", "PET_LOCAL_RANKS_FILTER": ""}),
    Case("names that no variable has", "--master-port @port @script", {"PET_R": "3", "PET_T": "3", "PET_NPROC": "4", "PET_M": "1"}),
    Case("a flag's variable that is not a number", "--master-port @port @script", {"PET_STANDALONE": "yes"}, workers=0),
    Case("a flag's variable that is empty", "--master-port @port @script", {"PET_STANDALONE": ""}, workers=0),
    Case("a variable that is not a number", "--master-port @port @script", {"PET_MAX_RESTARTS": "many"}, workers=0),
    Case("prefixes", "--nnode 1 --redirect 0 --master-p @port --max-r 1 --no-py --loc 0 @program x", workers=0),
    Case("prefixes that work", "--nnode 1 --redirect 0 --master-p @port --max-r 1 --no-py @program x"),
    Case("ambiguous prefix", "--master-port @port --no 1 @script", workers=0),
    Case("repeats: the last wins", "--master-port 1 --nproc-per-node 3 --nproc_per_node 2 --master-port=@port --role a --role b @script",
         workers=2),
    Case("short options", "--master-port @port --log-dir @logs -r 1 -t2 -m @module -r 3", do=EVERY_STREAM),
    Case("short options together", "--master-port @port --log-dir @logs -mr3 @module", do=EVERY_STREAM),
    Case("an unknown option", "--master-port @port --colour red @script", workers=0),
    Case("no script", "--master-port @port", workers=0),
    *[Case(f"{name} of a shell", f"--{name} bash", workers=0, since="--print-completion") for name in ("print-completion", "print_completion")],
    Case("print-completion of no shell", "--print-completion ksh", workers=0, since="--print-completion"),

    # All words after the script belong to the script.
    Case("script arguments", [*STATIC, "--nproc-per-node", "2", "@script", *ARGUMENTS], workers=2),
    Case("a program's arguments", [*STATIC, "--no-python", "@program", *ARGUMENTS]),
    Case("a module's arguments", [*STATIC, "-m", "@module", *ARGUMENTS]),
    Case("-- before the script", "--master-port @port -- @script -- x"),
    Case("-- before and after, with options", "--master-port @port -- @script -- --nproc-per-node 2"),
    Case("-- after the script only", "--master-port @port @script -- -- x --"),
    Case("script arguments that start like options", "--master-port @port @script --np 3 --stand --no x", workers=0),

    # The following cases test the started program.
    Case("a script", "--master-port @port here.py", files={"here.py": f"import sys; sys.argv[0] = __file__; exec(open({str(contract.PROBE)!r}).read())"}),
    Case("a script in the parent folder", "--master-port @port ../work/here.py", files={"here.py": f"exec(open({str(contract.PROBE)!r}).read())"}),
    Case("a script that is not there", "--master-port @port nowhere.py", workers=0),
    Case("a module", "--master-port @port --module @module a b"),
    Case("a module that is not there", "--master-port @port -m no.such.module", workers=0),
    Case("a program", "--master-port @port --no_python @program a b"),
    Case("a program on PATH", "--master-port @port --no-python python3 @script a b"),
    Case("a program that is not there", "--master-port @port --no-python /no/such/program", workers=0),
    Case("no-python with module", "--master-port @port --no-python -m @module", workers=0),
    Case("run-path", "--master-port @port --run-path @script a b"),
    Case("run-path beats no-python", "--master-port @port --run_path --no-python @script a b"),
    Case("run-path: exit 0", "--master-port @port --run-path @script", do={"*": ["exit 0"]}),
    Case("PYTHON_EXEC", "--master-port @port @script", {"PYTHON_EXEC": "@python"}),

    # Static
    Case("defaults", "@script"),
    Case("master-addr as typed", "--master-addr localhost --master-port @port @script"),
    Case("endpoint beats master-port", "--rdzv-endpoint 127.0.0.1:@port --master-addr 10.0.0.1 --master-port 1 @script"),
    Case("an endpoint with spaces", ["--rdzv-endpoint", " localhost:@port ", "@script"]),
    Case("static endpoint without a port", "--rdzv-endpoint localhost @script", workers=0),
    Case("static with a run id", "--rdzv-id job-7 --master-port @port --log-dir @logs @script"),

    # c10d
    Case("c10d", "--rdzv-backend c10d --rdzv-endpoint localhost:@port --rdzv-id one --nnodes 1:1 --nproc-per-node 2 @script", workers=2),
    Case("c10d without an id", "--rdzv-backend c10d --rdzv-endpoint localhost:@port @script"),
    Case("c10d without a shared store", "--rdzv-backend c10d --rdzv-endpoint localhost:@port @script", {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}),
    Case("c10d and a configuration", "--rdzv-backend c10d --rdzv-endpoint localhost:@port --rdzv-conf join_timeout=60,last_call_timeout=1,"
         "close_timeout=5,read_timeout=20,is_host=1,keep_alive_interval=1,keep_alive_max_attempt=2,heartbeat_timeout=3 @script"),
    Case("standalone", "--standalone --nproc-per-node 2 --log-dir @logs @script", workers=2),
    Case("standalone ignores an id and an endpoint", "--standalone --rdzv-id mine --rdzv-endpoint nowhere.invalid:1 --rdzv-backend static @script"),
    Case("unknown backend", "--rdzv-backend smoke --rdzv-endpoint localhost:@port @script", workers=0),

    # rdzv-conf
    Case("rdzv-conf in quotes", ["--rdzv-conf", "'join_timeout=5,close_timeout=5,timeout=5'", "--rdzv-backend=c10d",
         "--rdzv-endpoint=localhost:@port", "@script"]),
    Case("rdzv-conf in quotes, static", ["--rdzv-conf", "'join_timeout=5,timeout=5'", *STATIC, "@script"], workers=0),
    Case("rdzv-conf with spaces", ["--rdzv-conf", " timeout = 5 , a=b=c ", *STATIC, "@script"]),
    *[Case(f"rdzv-conf {text!r}", ["--rdzv-conf", text, *STATIC, "@script"], workers=0) for text in
      ("timeout=5,", "a=1,,b=2", "=5", "timeout=", "timeout")],

    # Values that are not valid numbers must be refused.
    *[Case(f"nnodes {text!r}", ["--nnodes", text, *STATIC, "@script"], workers=0) for text in ("0", "2:1", "1:2:3", "a", "", "-1")],
    *[Case(f"nproc-per-node {text!r}", ["--nproc-per-node", text, *STATIC, "@script"], workers=0) for text in ("many", "", "1.5", "xpu")],
    Case("max-restarts -1", "--max-restarts=-1 --master-port @port @script", workers=0),
    Case("max-restarts 1.5", "--max-restarts 1.5 --master-port @port @script", workers=0),
    Case("start-method", "--start-method thread --master-port @port @script", workers=0),
    *[Case(name, f"--{name} planet --master-port @port @script", workers=0) for name in ("numa-binding", "numa_binding")],
    *[Case(name, f"--{name} none_such --master-port @port @script", workers=0) for name in ("logs-specs", "logs_specs")],
    *[Case(f"nproc-per-node {text}", f"--nproc-per-node {text} --master-port @port @script", workers=os.cpu_count()) for text in ("cpu", "auto")
      # These cases run only on small machines, because on larger ones ddprun intentionally counts workers differently than
      # torchrun.
      if os.cpu_count() == len(os.sched_getaffinity(0)) <= 4 and not gpus()],

    # The environment
    Case("stale variables", S2 + " @script", {"RANK": "7", "LOCAL_RANK": "7", "WORLD_SIZE": "9", "LOCAL_WORLD_SIZE": "9", "GROUP_RANK": "5",
         "GROUP_WORLD_SIZE": "6", "ROLE_RANK": "4", "ROLE_WORLD_SIZE": "4", "ROLE_NAME": "old", "MASTER_ADDR": "10.1.1.1", "MASTER_PORT": "1",
         "TORCHELASTIC_RESTART_COUNT": "5", "TORCHELASTIC_MAX_RESTARTS": "5", "TORCHELASTIC_RUN_ID": "old",
         "TORCHELASTIC_USE_AGENT_STORE": "True"}, workers=2),
    Case("OMP_NUM_THREADS is kept", S2 + " @script", {"OMP_NUM_THREADS": "3"}, workers=2),
    Case("OMP_NUM_THREADS that is empty", S2 + " @script", {"OMP_NUM_THREADS": ""}, workers=2),
    Case("TORCH_NCCL_ASYNC_ERROR_HANDLING is kept", "--master-port @port @script", {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}),
    Case("CUDA_VISIBLE_DEVICES is kept", S2 + " @script", {"CUDA_VISIBLE_DEVICES": "3, 1"}, workers=2),
    Case("odd variables", "--master-port @port @script", {"EMPTY": "", "SPACES": " a  b ", "LINES": "a\nb", "EQUALS": "a=b=c", "lower": "é"}),
    Case("virtual local rank", S2 + " --virtual-local-rank @script", workers=2),
    Case("virtual local rank, underscore, mapped", S2 + " --virtual_local_rank @script $local_rank", {"CUDA_VISIBLE_DEVICES": " 3, 1 ,0"}, workers=2),
    Case("virtual local rank, too few devices", S2 + " --virtual-local-rank @script", {"CUDA_VISIBLE_DEVICES": "3"}, workers=0),
    Case("virtual local rank, HIP's devices", S2 + " --virtual-local-rank @script", {"HIP_VISIBLE_DEVICES": "6,4 ", "CUDA_VISIBLE_DEVICES": "3"},
         workers=2, since="--shutdown-timeout"),
    Case("virtual local rank, HIP's devices are empty", S2 + " --virtual-local-rank @script", {"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "3,1"},
         workers=2, since="--shutdown-timeout"),
    Case("virtual local rank, too few of HIP's devices", S2 + " --virtual-local-rank @script", {"HIP_VISIBLE_DEVICES": "6", "CUDA_VISIBLE_DEVICES": "3,1"},
         workers=0, since="--shutdown-timeout"),
    Case("a role", S2 + " --role evaluator @script", workers=2),

    # Output
    Case("raw output", S2 + " --log-dir @logs @script", do=EVERY_STREAM, workers=2),
    *[Case(f"redirects {text}", S2 + f" --log-dir @logs --redirects {text} @script", do=EVERY_STREAM, workers=2)
      for text in ("1", "2", "3", "0:1,1:2", "1:3", "5:3")],
    *[Case(f"tee {text}", S2 + f" --log-dir @logs --tee {text} @script", do=EVERY_STREAM, workers=2)
      for text in ("1", "2", "3", "0:3,1:1")],
    Case("redirects and tee", S2 + " --log-dir @logs -r 1:3 -t 0:2 @script", do=EVERY_STREAM, workers=2),
    *[Case(f"redirects {text!r}", [*STATIC, "-r", text, "@script"], workers=0) for text in ("4", "11", "0:1,", "a", "0:4", "", "1,2")],
    *[Case(f"tee {text!r}", [*STATIC, "-t", text, "@script"], workers=0) for text in ("4", "0:", "-1")],
    Case("tee of odd bytes", "--master-port @port --log-dir @logs -t 1 @script", do={"*": [r"raw ~>a\n\n~>b\xff\xfe\n~>no newline at the end"]}),
    Case("raw odd bytes", "--master-port @port @script", do={"*": [r"raw ~>a\n\n~>b\xff\xfe\n~>no newline at the end"]}),
    Case("the prefix template as an option", S2 + " --log-dir @logs -t 1 --log-line-prefix-template <${role_name}|$rank|${local_rank}|${hostname}> @script",
         {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "no"}, EVERY_STREAM, workers=2, since="--log-line-prefix-template"),
    Case("the prefix template, underscores", S2 + " --log-dir @logs -t 1 --log_line_prefix_template $hostname: @script", do=EVERY_STREAM, workers=2,
         since="--log-line-prefix-template"),
    Case("the prefix template as an option's variable", S2 + " --log-dir @logs -t 1 @script", {"PET_LOG_LINE_PREFIX_TEMPLATE": "of ${rank}: "},
         EVERY_STREAM, workers=2, since="--log-line-prefix-template"),
    Case("a role's prefix", S2 + " --role me --log-dir @logs -t 3 @script", do=EVERY_STREAM, workers=2),
    Case("the prefix template", S2 + " --role me --log-dir @logs -t 3 @script", {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE":
         "<${role_name}|$rank|${local_rank}|${x}|$$>"}, EVERY_STREAM, workers=2),
    Case("an empty prefix template", S2 + " --log-dir @logs -t 3 @script", {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": ""}, EVERY_STREAM, workers=2),
    Case("filter of raw output", S2 + " --log-dir @logs --local-ranks-filter 1 @script", do=EVERY_STREAM, workers=2),
    Case("filter of teed output", S2 + " --log-dir @logs --local-ranks-filter 0 -t 3 @script", do=EVERY_STREAM, workers=2),
    Case("filter of mixed output", S2 + " --log-dir @logs --local-ranks-filter 1 -t 0:1,1:1 -r 0:2 @script", do=EVERY_STREAM, workers=2),
    *[Case(f"filter {text!r}", [*STATIC, "--local-ranks-filter", text, "@script"], workers=0) for text in ("a", "0,", "0;1")],
    Case("duplicate filters", S2 + " --log-dir @logs -t 3 --duplicate-stdout-filters apple,fig --duplicate-stderr-filters apple @script",
         do=TWO_LINES, workers=2),
    Case("duplicate filters of teed ranks", S2 + " --log-dir @logs -t 0:1 --duplicate-stdout-filters apple --duplicate-stderr-filters apple @script",
         do=TWO_LINES, workers=2),
    Case("duplicate filters with a comma", S2 + " --log-dir @logs -t 3 --duplicate-stderr-filters apple,,,x @script", do=TWO_LINES, workers=2),
    Case("duplicate filters without tee", S2 + " --log-dir @logs --duplicate-stdout-filters apple @script", do=TWO_LINES, workers=2),
    Case("log folder in a folder to be made", "--master-port @port --log-dir @logs/a/b -r 3 @script", do=EVERY_STREAM),
    Case("log folder /dev/null", S2 + " --log-dir /dev/null -r 3 @script", do=EVERY_STREAM, workers=2),
    Case("log folder that is a file", "--master-port @port --log-dir @program @script", workers=0),
    Case("no log folder", S2 + " -r 1 -t 2 @script", do=EVERY_STREAM, workers=2),

    # Failures
    Case("exit 3", S2 + " --log-dir @logs @script", do={"0": ["wait"], "1": ["exit 3"]}, workers=2,
         find=(r"^@script FAILED$", r"^Root Cause", r"^  rank      : 1 \(local_rank: 1\)$", r"^  exitcode  : 3 \(pid: \d+\) ?$",
               r"^  error_file: <N/A>$", r"^  host      : ", r"^  time      : \d{4}-\d\d-\d\d_")),
    Case("a signal", S2 + " --log-dir @logs @script", do={"0": ["wait"], "1": ["kill SIGSEGV"]}, workers=2,
         find=(r"^  exitcode  : -11 \(pid: \d+\) *(?:\(SIGSEGV\))?$", r"Signal 11 \(SIGSEGV\) received by PID \d+")),
    Case("an exception", "--master-port @port --log-dir @logs -r 2 @script", do={"*": ["raise oh"]}, find=("^  exitcode  : 1 ",)),
    Case("both fail", S2 + " @script", do={"*": ["exit 4"]}, workers=2, find=("^  exitcode  : 4 ",)),
    Case("exit 0 of all", S2 + " @script", do={"*": ["exit 0"]}, workers=2, find=("FAILED",)),
    Case("restarts", S2 + " --max-restarts 2 --log-dir @logs -t 1 @script", do={"*": ["print again", "wait"], "1.0": ["print a", "exit 3"],
         "0.1": ["exit 4"], "*.2": ["print done"], }, workers=6, find=("FAILED",)),
    Case("restarts that are spent", S2 + " --max-restarts 1 --log-dir @logs -r 1 @script", do={"0": ["print 0", "wait"], "1": ["print 1", "exit 3"]}, workers=4,
         find=(r"^  exitcode  : 3 ",)),
    Case("error file", "--master-port @port --log-dir @logs @script",
         do={"*": ['error {"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": "Traceback here", "timestamp": "1700000000"}}}', "exit 1"]},
         find=("Traceback here", r"^  error_file: @logs/none_.*/attempt_0/0/error.json$")),
    Case("flat error file", "--master-port @port --log-dir @logs @script", do={"*": ['error {"message": "flat", "timestamp": 10}', "exit 7"]},
         find=("flat", r"^  error_file: @logs/none_.*/attempt_0/0/error.json$")),
    Case("the launcher's own error file", "--master-port @port --log-dir @logs/inner @script", {"TORCHELASTIC_ERROR_FILE": "@logs/outer.json"},
         {"*": ['error {"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": "here", "timestamp": "1700000000"}}}', "exit 5"]}),
    Case("the launcher's own flat error file", "--master-port @port --log-dir @logs/inner @script", {"TORCHELASTIC_ERROR_FILE": "@logs/outer.json"},
         {"*": ['error {"message": "flat", "timestamp": 10}', "exit 5"]}),
    Case("the root cause is the earliest", S2 + " --log-dir @logs @script",
         do={"0": ['error {"message": "late", "timestamp": 1700000009}', "exit 5"], "1": ['error {"message": "early", "timestamp": 1700000001}', "exit 6"]},
         workers=2, find=(r"^Root Cause.*\n(?:.*\n){1,6}.*early",)),

    # Signals
    *[Case(f"{name} to the launcher", S2 + " --max-restarts 1 @script", do={"*": ["wait"]}, send=(name,), workers=2)
      for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")],
    *[Case(f"{name} 1", S2 + f" --{name} 1 @script", do={"*": ["wait"]}, send=("SIGTERM",), workers=2, since="--shutdown-timeout")
      for name in ("shutdown-timeout", "shutdown_timeout")],
    Case("shutdown-timeout as a variable", S2 + " @script", {"PET_SHUTDOWN_TIMEOUT": "1"}, do={"*": ["wait"]}, send=("SIGTERM",), workers=2,
         since="--shutdown-timeout"),
    Case("shutdown-timeout -1", S2 + " --shutdown-timeout=-1 @script", workers=0, since="--shutdown-timeout"),
    Case("nohup", S2 + " @script", workers=2, ignored=("SIGHUP",)),
    # SIGINT is tested in test_leftovers.py: if the caller ignores SIGINT, torchrun handles it nevertheless, and ddprun
    # continues to ignore it.
    Case("signals that the caller ignores", "--master-port @port @script", ignored=("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGALRM", "SIGWINCH")),
    Case("ignored signals that are not handled", "--signals-to-handle SIGTERM --master-port @port @script",
         ignored=("SIGINT", "SIGQUIT", "SIGHUP")),
    Case("a caller that ignores SIGPIPE", ["--no-python", *STATIC, "sh", "-c", "BEFORE=$$(grep SigIgn /proc/self/status) exec @program"],
         ignored=("SIGPIPE", "SIGXFSZ")),
    Case("a caller that ignores SIGCHLD", "--master-port @port @script", ignored=("SIGCHLD",)),
    Case("signals that the caller blocks", "--master-port @port @script", blocked=("SIGTERM", "SIGUSR1", "SIGALRM")),
    Case("signals to handle", S2 + " --signals-to-handle SIGUSR2,SIGTERM @script", do={"*": ["wait"]}, send=("SIGUSR2",), workers=2),
]


done: set[str] = set()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_same_as_torchrun(torchrun, ddprun_bin, tmp_path, case):
    if case.since and not any(case.since in spellings for spellings, _ in torchrun.options):
        done.add(case.name)
        pytest.skip(f"this torchrun has no {case.since}")
    contract_differences.compare(torchrun, ddprun_bin, case, tmp_path / "case")
    done.add(case.name)


def test_every_option_and_variable_has_a_case(torchrun):
    words = {word.partition("=")[0] for case in CASES
             for word in (case.arguments.split() if isinstance(case.arguments, str) else case.arguments)}
    variables = {name for case in CASES for name in case.environment}
    missing = [name for spellings, variable in torchrun.options for name in spellings if name not in words]
    missing += [variable for _, variable in torchrun.options if variable and variable not in variables]
    assert not missing


def test_every_intended_difference_still_exists():
    if done != {case.name for case in CASES}:
        pytest.skip("runs only after all cases of the table")
    assert [each.why for each in contract_differences.DIFFERENCES if each not in contract_differences.used and not each.nodes
            and not each.since] == []
