"""Checks with auditwheel that a wheel meets the platform tag in its name. Called by package.py for both wheels."""

import pathlib
import re

from auditwheel.wheel_abi import analyze_wheel_abi
from auditwheel.wheeltools import get_wheel_architecture, get_wheel_libc


def mistakes_of(wheel: pathlib.Path, lent: set[str]) -> list[str]:
    """The ways in which the wheel does not meet its tag. `lent` are libraries that it uses from outside on purpose, as in `auditwheel repair
    --exclude`. Otherwise auditwheel would check this machine's copies of them and all their dependencies."""
    found = analyze_wheel_abi(get_wheel_libc(wheel.name), get_wheel_architecture(wheel.name), wheel, frozenset(lent), disable_isa_ext_check=False,
                              allow_graft=False)
    kept = found.overall_policy.name
    print(f"  auditwheel: {kept}, expected from outside: {', '.join(sorted(lent))}", flush=True)

    def order(tag: str) -> tuple[int, ...]:  # linux_x86_64, which promises nothing, sorts last
        return tuple(map(int, re.search(r"manylinux_(\d+)_(\d+)_", tag + "manylinux_999_0_").groups()))

    return [f"auditwheel: {wheel.name} meets only {kept}"] if order(kept) > order(wheel.name) else []
