"""Landlock: this process and its children can write no file, run no program, reach no TCP port.

Reading stays allowed, because Python loads modules and data late. As no rule names a path, three
system calls are enough.
"""

import ctypes
import errno
import platform
import struct

_CREATE, _RESTRICT = 444, 446
_VERSION_FLAG = 1
_PR_SET_NO_NEW_PRIVS = 38
_READ = 1 << 2 | 1 << 3
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
"""For each version of the interface: its number of file access rights."""
_TCP = 0b11
_SOCKETS_AND_SIGNALS = 0b11


def forbid_changes() -> list[str]:
    """Restrict this process; return what could not be restricted (empty if nothing)."""
    if platform.system() != "Linux":
        return [f"no Landlock on {platform.system()}"]
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE, None, 0, _VERSION_FLAG)
    if version < 1:
        return ["no Landlock in this kernel"]
    ruleset = libc.syscall(_CREATE, *_attributes(version), 0)
    if ruleset < 0 or libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return [_failure()]
    restricted = libc.syscall(_RESTRICT, ruleset, 0)
    missing = [] if restricted == 0 else [_failure()]
    libc.close(ruleset)
    return missing


def _attributes(version: int) -> tuple[bytes, int]:
    """The rights that the kernel of a version should handle: the structure and its size."""
    rights = max(count for known, count in _FILE_RIGHTS.items() if known <= version)
    files = (1 << rights) - 1 & ~_READ
    network = _TCP if version >= 4 else 0
    scope = _SOCKETS_AND_SIGNALS if version >= 6 else 0
    fields = 1 + (version >= 4) + (version >= 6)
    structure = struct.pack("QQQ", files, network, scope)[: 8 * fields]
    return structure, len(structure)


def _failure() -> str:
    return f"no Landlock ({errno.errorcode.get(ctypes.get_errno(), 'refused')})"
