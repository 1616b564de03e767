"""The real torchrun, many times in one process. contract.py starts this once; it imports torch.distributed.run (2.5 s of CPU). For every order on its
standard input it forks and calls torchrun's own main() in the child, with the order's arguments, environment, folder, output files and signals. No
part of torchrun is replaced: its import is shared, and a child ends without the teardown of Python's modules (0.5 s of CPU). One line of JSON has the
orders of all agents of a job. The answer is their pids, then their statuses."""

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
    """Every option of this torchrun: its spellings, and the environment variable that also sets it, if any."""
    actions = torch.distributed.run.get_args_parser()._actions
    return [[action.option_strings, f"PET_{action.dest.upper()}" if isinstance(action, (env, check_env)) else None]
            for action in actions if action.option_strings and action.dest != "help"]


def run_and_end(arguments: list[str]) -> None:
    """Calls torchrun's main() and ends with the exit code that the interpreter would give it."""
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
    gc.freeze()  # without it, each child's first collection copies all of torch's objects
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
