"""A seccomp filter that refuses the system calls that no program in a sandbox needs.

Namespaces decide what a program can see; the filter decides how much of the kernel it can use. It refuses
calls that create or enter namespaces and mounts, read other processes, load code into the kernel, change the
machine, or keep memory that no limit counts (memory files, System V segments). A refused call fails with "not
permitted". Calls that libraries try first and can replace fail with "no such call". Calls in another
machine's numbering end the program.

The filter is classic BPF as the kernel accepts it, eight bytes an instruction. It is assembled here, because
the library that others use for it would have to be installed on every machine.
"""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass
from functools import cache

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in the kernel's struct seccomp_data

_X32 = 0x40000000
"""The bit in the numbers of a second set of calls on x86-64, which nothing uses."""

_NEW_NAMESPACES = 0x7E020000
"""All CLONE_NEW… flags of clone."""

_TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: they type into the terminal of the process that started the sandbox."""

_UNIX, _INET, _INET6 = 1, 2, 10
_SET_DUMPABLE = 4
"""An operation of prctl. A process that hides from inspection could not be measured either."""


@dataclass(frozen=True, slots=True)
class _Machine:
    architecture: int
    clone: int
    ioctl: int
    socket: int
    prctl: int
    refused: tuple[int, ...]
    unknown: tuple[int, ...]
    """The calls that fail with "no such call"."""


_EVERYWHERE = (
    *(425, 426, 427),  # io_uring
    *(428, 429, 430, 431, 432, 433, 442, 467),  # the new mount calls
    *(438, 440, 443),  # pidfd_getfd, process_madvise, quotactl_fd
)
"""The refused calls that have the same number on every machine, as new calls have since Linux 5.1."""

_CLONE3 = 435
"""The call clone3. Its flags lie in memory, which a filter cannot read; libraries fall back to clone."""

_MACHINES = {
    "x86_64": _Machine(
        architecture=0xC000003E,
        clone=56,
        ioctl=16,
        socket=41,
        prctl=157,
        refused=(
            *_EVERYWHERE,
            *(165, 166, 155, 272, 308, 161),  # mount, umount2, pivot_root, unshare, setns, chroot
            *(101, 310, 311, 312),  # ptrace, process_vm_readv, process_vm_writev, kcmp
            *(321, 298, 323),  # bpf, perf_event_open, userfaultfd
            *(304, 303),  # open_by_handle_at, name_to_handle_at
            *(248, 249, 250),  # add_key, request_key, keyctl
            *(175, 176, 313, 246, 320, 169),  # modules, kexec, reboot
            *(167, 168, 163, 179, 103),  # swapon, swapoff, acct, quotactl, syslog
            *(164, 227, 159, 305),  # settimeofday, clock_settime, adjtimex, clock_adjtime
            *(170, 171),  # sethostname, setdomainname
            *(172, 173, 154),  # iopl, ioperm, modify_ldt
            *(135, 300),  # personality, fanotify_init
            *(279, 256, 237, 238),  # move_pages, migrate_pages, mbind, set_mempolicy
            *(64, 65, 66, 68, 69, 70, 71),  # System V semaphores and queues
        ),
        unknown=(_CLONE3, 319, 447, 29, 30, 31),  # memfd_create, memfd_secret, System V memory
    ),
    "aarch64": _Machine(
        architecture=0xC00000B7,
        clone=220,
        ioctl=29,
        socket=198,
        prctl=167,
        refused=(
            *_EVERYWHERE,
            *(40, 39, 41, 97, 268, 51),
            *(117, 270, 271, 272),
            *(280, 241, 282),
            *(265, 264),
            *(217, 218, 219),
            *(105, 106, 273, 104, 294, 142),
            *(224, 225, 89, 60, 116),
            *(170, 112, 171, 266),
            *(161, 162),
            *(92, 262),
            *(239, 238, 235, 237),
            *(186, 187, 188, 189, 190, 191, 192, 193),
        ),
        unknown=(_CLONE3, 279, 447, 194, 195, 196, 197),
    ),
}

MACHINES = tuple(_MACHINES)
"""The supported machines, as `uname -m` names them."""


@cache
def filter_program(machine: str) -> bytes:
    """Return the filter for one of `MACHINES`."""
    numbers = _MACHINES[machine]
    return b"".join(
        (
            _step(_LOAD, _ARCHITECTURE),
            _step(_EQUAL, numbers.architecture, 1, 0) + _step(_RETURN, _KILL),
            _step(_LOAD, _NUMBER),
            _step(_AT_LEAST, _X32, 0, 1) + _step(_RETURN, _ERRNO | errno.ENOSYS),
            *(_refuse(number, errno.EPERM) for number in sorted(numbers.refused)),
            *(_refuse(number, errno.ENOSYS) for number in sorted(numbers.unknown)),
            _refuse_bits(numbers.clone, 0, _NEW_NAMESPACES),
            _refuse_values(numbers.ioctl, 1, _TERMINAL_INPUT, errno.EPERM),
            _refuse_values(numbers.prctl, 0, (_SET_DUMPABLE,), errno.EPERM),
            _allow_values(numbers.socket, 0, (_UNIX, _INET, _INET6), errno.EAFNOSUPPORT),
            _step(_RETURN, _ALLOW),
        )
    )


def _step(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return one instruction. The last two arguments are the numbers of instructions to skip."""
    return struct.pack("=HBBI", code, if_true, if_false, operand)


def _refuse(number: int, error: int) -> bytes:
    return _step(_EQUAL, number, 0, 1) + _step(_RETURN, _ERRNO | error)


def _refuse_bits(number: int, position: int, bits: int) -> bytes:
    test = _step(_ANY_BIT, bits, 0, 1) + _step(_RETURN, _ERRNO | errno.EPERM)
    return _if_call(number, position, test + _step(_RETURN, _ALLOW))


def _refuse_values(number: int, position: int, values: tuple[int, ...], error: int) -> bytes:
    tests = b"".join(_refuse(value, error) for value in values)
    return _if_call(number, position, tests + _step(_RETURN, _ALLOW))


def _allow_values(number: int, position: int, values: tuple[int, ...], error: int) -> bytes:
    tests = b"".join(_step(_EQUAL, v, 0, 1) + _step(_RETURN, _ALLOW) for v in values)
    return _if_call(number, position, tests + _step(_RETURN, _ERRNO | error))


def _if_call(number: int, position: int, tests: bytes) -> bytes:
    """Return tests of one argument of one call. The tests return in every case; other calls skip them. Only
    the lower half of the argument is tested: both machines are little-endian."""
    body = _step(_LOAD, _ARGUMENTS + 8 * position) + tests
    return _step(_EQUAL, number, 0, len(body) // 8) + body
