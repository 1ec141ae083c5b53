"""Limits of a process that runs code of others: memory, files, folders, network.

Linux enforces them (``setrlimit``, Landlock). They contain mistakes, and are no defense
against a hostile program, which can read all that its user can.
"""

import ctypes
import os
import platform
import resource
from collections.abc import Iterable
from pathlib import Path

#: Largest private memory of a process, and largest file, in bytes.
MEMORY = 8 * 2**30
FILE_SIZE = 2**28

# Landlock: system calls, and rights by the version that has them.
CREATE_RULESET = 444
ADD_RULE = 445
RESTRICT_SELF = 446
VERSION_FLAG = 1
BENEATH_PATH = 1
NO_NEW_PRIVILEGES = 38
#: Write, remove and make files of all kinds; then move, truncate.
WRITE_RIGHTS = (1 << 1) | sum(1 << bit for bit in range(4, 13))
LATER_RIGHTS = {2: 1 << 13, 3: 1 << 14}
#: Bind and connect with TCP, and the version that has them.
NETWORK_RIGHTS = 0b11
NETWORK_VERSION = 4


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


def limit_resources() -> None:
    """Limit the memory and the size of files, also of later child processes.

    A longer file is an ``OSError``, more memory a ``MemoryError``.
    """
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))


def confine_writes(folders: Iterable[Path]) -> bool:
    """Refuse writes outside of some folders, and TCP connections, from now on.

    Child processes inherit it. What breaks it is a ``PermissionError``.

    Parameters
    ----------
    folders : iterable of Path
        Existing ones. Devices can be written as well.

    Returns
    -------
    bool
        Whether the system refuses both: Linux 6.7 or newer. From 5.13 on it refuses
        writes alone.
    """
    if platform.system() != "Linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(CREATE_RULESET, None, 0, VERSION_FLAG)
    if version < 1:
        return False

    # All that this version can refuse.
    files = WRITE_RIGHTS
    for since, right in LATER_RIGHTS.items():
        files |= right * (version >= since)
    network = NETWORK_RIGHTS * (version >= NETWORK_VERSION)
    ruleset = ctypes.byref(_Ruleset(files, network))
    size = ctypes.sizeof(_Ruleset)
    if not network:
        # Older versions do not know the second field.
        size = ctypes.sizeof(ctypes.c_uint64)
    rules = _check(libc.syscall(CREATE_RULESET, ruleset, size, 0))

    # What is allowed again.
    for folder in (*folders, Path("/dev")):
        descriptor = os.open(folder, os.O_PATH)
        rule = ctypes.byref(_PathRule(files, descriptor))
        _check(libc.syscall(ADD_RULE, rules, BENEATH_PATH, rule, 0))
        os.close(descriptor)

    _check(libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _check(libc.syscall(RESTRICT_SELF, rules, 0))
    os.close(rules)
    return bool(network)


def _check(result: int) -> int:
    """Return the result of a system call, or raise its error."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
