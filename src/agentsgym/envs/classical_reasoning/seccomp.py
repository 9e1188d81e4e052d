"""A seccomp filter that permanently removes system calls from this process and its children.

A refused call fails with "operation not permitted". The filter lists refused calls, not allowed
ones, because the calls of an interpreter and its libraries differ by version. Together with
Landlock it leaves only reading files, memory, time, and writing to files that are already open.
"""

import ctypes
import errno
import platform
import struct
from collections.abc import Iterable, Sequence

_X86, _ARM = 0, 1
_MACHINES = {"x86_64": (_X86, 0xC000003E, 317), "aarch64": (_ARM, 0xC00000B7, 277)}
"""For each machine: the column of the table, the audit architecture, the number of seccomp(2)."""

_CALLS: dict[str, tuple[int | None, int | None]] = {
    # programs and other processes
    "execve": (59, 221), "execveat": (322, 281), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "setpriority": (141, 140), "sched_setaffinity": (203, 122),
    # the network, and sockets of any kind
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200),
    "listen": (50, 201), "accept": (43, 202), "accept4": (288, 242),
    "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269),
    # changes of files
    "creat": (85, None), "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276),
    "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None),
    "unlinkat": (263, 35), "link": (86, None), "linkat": (265, 37), "symlink": (88, None),
    "symlinkat": (266, 36), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53),
    "fchmodat2": (452, 452), "chown": (92, None), "fchown": (93, 55), "lchown": (94, None),
    "fchownat": (260, 54), "truncate": (76, 45), "ftruncate": (77, 46),
    "mknod": (133, None), "mknodat": (259, 33), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "setxattr": (188, 5),
    "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "openat2": (437, 437),
    "open_by_handle_at": (304, 265), "memfd_create": (319, 279), "mq_open": (240, 180),
    # shared memory and semaphores of other processes
    "shmget": (29, 194), "shmctl": (31, 195), "semctl": (66, 191), "msgctl": (71, 187),
    # the kernel
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "mount": (165, 40), "umount2": (166, 39), "chroot": (161, 51), "pivot_root": (155, 41),
    "unshare": (272, 97), "setns": (308, 268), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
}  # fmt: skip

_MORE: dict[str, tuple[int | None, int | None]] = {
    "fork": (57, None), "vfork": (58, None), "clone": (56, 220), "kill": (62, 129),
}  # fmt: skip
_CLONE3 = 435
_OPEN, _OPENAT, _PRLIMIT = (2, None), (257, 56), (302, 261)
_WRITING = 0o1 | 0o2 | 0o100 | 0o1000 | 0o20000000
"""Flags of open(2) that write or create a file: O_WRONLY, O_RDWR, O_CREAT, O_TRUNC and
O_TMPFILE's own bit; they are the same on both machines."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_PR_SET_NO_NEW_PRIVS = 38

Instruction = tuple[int, int, int, int]


def forbid_calls(*, processes: bool) -> str | None:
    """Install the filter; with `processes` also against new processes and signals to others.

    Returns the reason if the filter could not be installed, else None.
    """
    machine = _MACHINES.get(platform.machine())
    if platform.system() != "Linux" or machine is None:
        return f"no seccomp on {platform.system()} {platform.machine()}"
    column, architecture, number = machine
    names = {**_CALLS, **_MORE} if processes else _CALLS
    refused = [entry[column] for entry in names.values()]
    filter_ = _program(column, architecture, [call for call in refused if call is not None])
    return _install(filter_, number)


def _program(column: int, architecture: int, refused: Iterable[int]) -> list[Instruction]:
    code: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]  # fmt: skip
    if column == _X86:  # the x32 calling convention has other numbers for the same calls
        code += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _KILL)]
    for call in refused:
        code += _unless(_EQUAL, call, _ERRNO | errno.EPERM)
    code += _unless(_EQUAL, _CLONE3, _ERRNO | errno.ENOSYS)  # the C library then uses clone
    for entry, position in ((_OPEN, 1), (_OPENAT, 2)):
        code += _if_call(entry[column], position, _ANY_BIT, _WRITING)
    code += _if_call(_PRLIMIT[column], 0, _AT_LEAST, 1)  # the limits of another process
    return [*code, (_RETURN, 0, 0, _ALLOW)]


def _unless(test: int, value: int, answer: int) -> list[Instruction]:
    return [(test, 0, 1, value), (_RETURN, 0, 0, answer)]


def _if_call(call: int | None, argument: int, test: int, value: int) -> list[Instruction]:
    """Refuse a call whose argument (its lower half) passes the test."""
    if call is None:
        return []
    check = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument), *_unless(test, value, _ERRNO | errno.EPERM)]
    return [(_EQUAL, 0, len(check) + 1, call), *check, (_RETURN, 0, 0, _ALLOW)]


def _install(code: Sequence[Instruction], number: int) -> str | None:
    libc = ctypes.CDLL(None, use_errno=True)
    text = b"".join(struct.pack("HBBI", *instruction) for instruction in code)
    held = ctypes.create_string_buffer(text, len(text))
    program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(held))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return "no_new_privs was refused"
    if libc.syscall(number, _SET_MODE_FILTER, _ALL_THREADS, program) != 0:
        return f"no seccomp ({errno.errorcode.get(ctypes.get_errno(), 'refused')})"
    return None
