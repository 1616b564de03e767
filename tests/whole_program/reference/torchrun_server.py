"""Runs torchrun many times but imports torch only once. contract.py starts this process once. It imports
torch.distributed.run, which takes 2.5 s of CPU time. It then reads requests from its standard input. A request is a JSON
object that describes one start of torchrun. For each request the process forks. The child calls the original main() of
torchrun with the arguments, environment, folder, output files and signals of the request. No part of torchrun is replaced. The
children use the modules that the parent has imported, and skip the teardown of modules at exit, which takes 0.5 s of CPU time.

Each input line is a JSON list with the requests for all agents of one job. The answer is a line with their pids, and later a
line with their exit codes."""

import atexit
import gc
import json
import os
import sys
import threading

import torch.distributed.run
from caller_signals import take_signals
from torch.distributed.argparse_util import check_env, env


def become(order: dict) -> list[str]:
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["cwd"])
    for fd, path, flags in ((0, os.devnull, os.O_RDONLY), (1, order["stdout"], os.O_WRONLY | os.O_APPEND),
                            (2, order["stderr"], os.O_WRONLY | os.O_APPEND)):
        opened = os.open(path, flags)
        os.dup2(opened, fd)
        os.close(opened)
    take_signals(order)
    sys.argv = ["torchrun", *order["arguments"]]
    return order["arguments"]


def options() -> list:
    """Returns all options of this torchrun version. Each entry has the spellings of an option, and the environment variable
    that also sets it, or None."""
    actions = torch.distributed.run.get_args_parser()._actions
    return [[action.option_strings, f"PET_{action.dest.upper()}" if isinstance(action, (env, check_env)) else None]
            for action in actions if action.option_strings and action.dest != "help"]


def run_and_end(arguments: list[str]) -> None:
    """Calls main() of torchrun. Then ends this process with the exit code that Python would have returned."""
    code = 0
    try:
        torch.distributed.run.main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "w", buffering=1)
    print(json.dumps(options()), file=answers)
    gc.collect()
    # Excludes the objects of torch from garbage collection. A collection would write to their memory, so each child would copy
    # this memory.
    gc.freeze()
    for line in orders:
        agents = []
        for order in json.loads(line):
            agents.append(os.fork())
            if agents[-1] == 0:
                arguments = become(order)
                os.close(orders.fileno())
                os.close(answers.fileno())
                run_and_end(arguments)
        print(json.dumps(agents), file=answers)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in agents]), file=answers)


if __name__ == "__main__":
    main()
