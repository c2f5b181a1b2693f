"""What a program in a sandbox may try.

A probe is a script that says UNSAFE when it got what it must not get, or prints one of the planted
secrets. Where a probe gets there *without* a sandbox, run by the same user on this machine, it is marked
so, and the suite sees that it does: a probe that could not find anything anywhere proves nothing.

In the scripts: $HOST a directory of the host with `secret` (readable by all), `socket` and `door` (a
directory that all may write); $HOME_ROOT the harness's home; $FOREIGN another account's tree; $PORT and
$ABSTRACT where the host listens; $PID a process of the same user on the host; $OWN the mount that the
probe is run in; $REF a mount that is read-only; $SCRATCH where it may write, in memory if not in $OWN.
"""

from __future__ import annotations

from dataclasses import dataclass

PYTHON = "python3 - <<'END' 2>/dev/null"


@dataclass(frozen=True)
class Probe:
    name: str
    script: str
    works_outside: bool = False
    machine: str | None = None
    """Where alone it means anything."""


def _syscall(name: str, number: int, *arguments: str) -> Probe:
    """A call that must be refused; numbers of x86-64."""
    return Probe(
        name,
        f"""{PYTHON}
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(256)
result = libc.syscall({", ".join([str(number), *arguments])})
if result >= 0 or ctypes.get_errno() not in (1, 38, 13, 97): print("UNSAFE", result, ctypes.get_errno())
END""",
        machine="x86_64",
    )


def _socket(family: str, number: int, kind: str = "SOCK_RAW") -> Probe:
    return Probe(
        f"a socket of family {family}",
        f"""{PYTHON}
import socket
try: socket.socket({number}, socket.{kind}, 0)
except OSError: pass
else: print("UNSAFE")
END""",
    )


def _connect(name: str, family: str, address: str, *, works_outside: bool) -> Probe:
    return Probe(
        name,
        f"""{PYTHON}
import os, socket
with socket.socket(socket.{family}) as s:
    s.settimeout(1)
    s.connect({address})
    print("UNSAFE", s.recv(100))
END""",
        works_outside,
    )


def _write(name: str, script: str) -> Probe:
    """An attempt to change the read-only mount."""
    return Probe(f"read-only: {name}", f"cd $REF && {{ {script}; }} 2>/dev/null && echo UNSAFE")


HOST_FILES = [
    Probe("a file of the host", "cat $HOST/secret", True),
    Probe("by ..", "cat ../../../../../..$HOST/secret", True),
    Probe("by a link", "cd $SCRATCH; ln -s $HOST/secret l; cat l", True),
    Probe("by a link to the root", "cd $SCRATCH; ln -s / r; cat r$HOST/secret", True),
    Probe(
        "by a link to ..",
        "cd $SCRATCH; ln -s ../../../../../../../.. u; cat u$HOST/secret u/../$HOST/secret",
        True,
    ),
    Probe("by the root of process 1", "cat /proc/1/root$HOST/secret"),
    Probe("by the root of every process", "cat /proc/[0-9]*/root$HOST/secret", True),
    Probe("by the directory of every process", "cat /proc/[0-9]*/cwd/../../..$HOST/secret"),
    Probe(
        "by every open file",
        "for f in /proc/[0-9]*/fd/*; do [ -d $f ] && cat $f/$HOST/secret; done",
    ),
    Probe(
        "by climbing handles",
        f"""{PYTHON}
import os
fd = os.open(".", os.O_RDONLY)
for _ in range(30): fd = os.open("..", os.O_RDONLY, dir_fd=fd)
print(os.read(os.open(os.environ["HOST"][1:] + "/secret", os.O_RDONLY, dir_fd=fd), 100))
END""",
        True,
    ),
    Probe("writing to the host", "echo x > $HOST/door/written && echo UNSAFE", True),
    Probe("shadow passwords", "cat /etc/shadow && echo UNSAFE"),
    Probe(
        "directories of people",
        "for d in /root /home /srv /var /opt /mnt /media /run /boot; do [ -e $d ] && echo UNSAFE $d; done",
        True,
    ),
    Probe("searching everywhere", "find / -xdev -name secret -size -2 -exec cat {} + 2>/dev/null"),
    Probe(
        "hardware",
        "[ -e /sys ] && echo UNSAFE; ls /dev/mem /dev/kmem /dev/sd* /dev/vd* /dev/nvme* 2>/dev/null && echo UNSAFE",
        True,
    ),
    Probe("the kernel's memory", "head -c 1 /proc/kcore | grep -q . && echo UNSAFE"),
    Probe("the kernel's log", "dmesg 2>/dev/null | grep -q . && echo UNSAFE"),
    Probe(
        "making a device",
        "cd $SCRATCH; mknod d b 254 0 2>/dev/null && echo UNSAFE; mknod c c 1 1 2>/dev/null && echo UNSAFE",
    ),
    Probe(
        "the system's programs",
        "for d in /usr/bin /bin /lib /etc /usr /sbin; do : > $d/written && echo UNSAFE; done",
    ),
    Probe("removing a program", "rm -f /usr/bin/env && echo UNSAFE"),
    Probe("the root", ": > /written && echo UNSAFE; mkdir /new && echo UNSAFE"),
    Probe(
        "beside the mounts", ": > /workspaces/x && echo UNSAFE; mkdir /workspaces/y && echo UNSAFE"
    ),
    Probe("passwords", "echo x::0:0::/:/bin/sh >> /etc/passwd && echo UNSAFE"),
]

OTHERS = [
    Probe("the home", "ls -R $HOME_ROOT && echo UNSAFE", True),
    Probe("another account", "cat $FOREIGN/MEMORY.md", True),
    Probe("another account, by a link", "cd $SCRATCH; ln -s $FOREIGN f; cat f/MEMORY.md", True),
    Probe("another account, by ..", "cat $OWN/../$(basename $FOREIGN)/MEMORY.md", True),
    Probe(
        "another account, by its name",
        "cat /workspaces/$(basename $FOREIGN)/MEMORY.md /workspaces/*/MEMORY.md",
    ),
    Probe("another account, by a hard link", "cd $SCRATCH; ln $FOREIGN/MEMORY.md h && cat h"),
    Probe(
        "another account, by the mounts' sources",
        "for p in $(cut -d' ' -f4 /proc/self/mountinfo); do cat $p/../*/MEMORY.md; done",
    ),
    Probe(
        "another account, by processes",
        "cat /proc/[0-9]*/root$FOREIGN/MEMORY.md /proc/[0-9]*/cwd/../*/MEMORY.md",
        True,
    ),
    Probe("writing to another account", "echo x > $FOREIGN/written && echo UNSAFE", True),
    Probe(
        "only what is mounted is there",
        "[ \"$(ls /workspaces | sort | tr '\\n' ' ')\" = 'ref w ' ] || echo UNSAFE $(ls /workspaces)",
        True,
    ),
    Probe(
        "history and locks",
        "ls -R / 2>/dev/null | grep -E '^fs-(own|foreign)|state\\.db|admin\\.key|harness\\.yaml' && echo UNSAFE",
    ),
]

PROCESSES = [
    Probe("variables of this process", "env; cat /proc/self/environ; set", True),
    Probe("variables of every process", "cat /proc/[0-9]*/environ | tr '\\0' '\\n'", True),
    Probe(
        "command lines of the host",
        "grep -la 'slee[p]' /proc/[0-9]*/cmdline 2>/dev/null | grep -q . && echo UNSAFE",
        True,
    ),
    Probe("processes of the host", "[ $(ls -d /proc/[0-9]* | wc -l) -gt 8 ] && echo UNSAFE"),
    Probe(
        "a process of the same user",
        "kill -0 $PID && grep -q sleep /proc/$PID/comm && echo UNSAFE",
        True,
    ),
    Probe("killing everything", "kill -9 -1; for p in $(seq 2 400) $PID; do kill -9 $p; done"),
    Probe(
        "open files of the host",
        "for f in /proc/self/fd/*; do case $(readlink $f) in *memfd*|/tmp/*|*socket*) echo UNSAFE $f;; esac; done",
    ),
    Probe(
        "namespaces of the host",
        'for n in /proc/[0-9]*/ns/net; do [ $(readlink $n) = "$HOST_NET" ] && echo UNSAFE; done',
        True,
    ),
    _syscall("entering a namespace", 308, "os.open('/proc/1/ns/net', 0)", "0"),
    _syscall("ptrace of process 1", 101, "16", "1", "0", "0"),
    _syscall("ptrace of oneself", 101, "0", "0", "0", "0"),
    _syscall("reading another process", 310, "1", "buffer", "1", "buffer", "1", "0"),
    _syscall("writing another process", 311, "1", "buffer", "1", "buffer", "1", "0"),
    _syscall("comparing processes", 312, "1", "1", "0", "0", "0"),
    _syscall("another's open file", 438, "3", "0", "0"),
    Probe("lowering one's killability", "echo -1000 > /proc/self/oom_score_adj && echo UNSAFE"),
    Probe(
        "a better priority",
        f"""{PYTHON}
import os
os.nice(-5); print("UNSAFE")
END""",
    ),
]

POWER = [
    Probe(
        "user 0",
        f"""{PYTHON}
import os
for change in (os.setuid, os.setgid, os.seteuid):
    try: change(0)
    except OSError: pass
    else: print("UNSAFE")
END""",
    ),
    Probe(
        "a program that runs as somebody else",
        "cd $SCRATCH; cp /bin/bash sh; chmod 6777 sh; ./sh -pc '[ $EUID = 1000 ] || echo UNSAFE'",
    ),
    Probe(
        "su and sudo",
        "for p in 'su -c id' 'sudo -n id' 'pkexec id'; do $p 2>/dev/null | grep uid=0 && echo UNSAFE; done",
    ),
    Probe(
        "capabilities",
        "grep -E '^Cap(Prm|Eff|Bnd|Amb)' /proc/self/status | grep -vq 0000000000000000 && echo UNSAFE",
        True,
    ),
    Probe("gaining privileges", "grep -q '^NoNewPrivs:.1' /proc/self/status || echo UNSAFE"),
    Probe("no filter", "grep -q '^Seccomp:.2' /proc/self/status || echo UNSAFE"),
    Probe(
        "an identity to claim", "{ echo '0 0 1' > /proc/self/uid_map; } 2>/dev/null && echo UNSAFE"
    ),
]

NAMESPACES = [
    Probe(
        "unshare",
        "for n in -U -Ur -r -m -n -p -i -u -C; do unshare $n true 2>/dev/null && echo UNSAFE $n; done",
        True,
    ),
    _syscall("unshare of a user namespace", 272, "0x10000000"),
    _syscall("unshare of mounts", 272, "0x20000"),
    _syscall("clone into a user namespace", 56, "0x10000000 | 17", "0", "0", "0", "0"),
    _syscall("clone into mounts and a user namespace", 56, "0x10020000 | 17", "0", "0", "0", "0"),
    _syscall("clone3", 435, "buffer", "88"),
    _syscall("clone by the other numbering", "0x40000000 | 39"),
    Probe(
        "a nested sandbox",
        "command -v bwrap >/dev/null && bwrap --ro-bind / / true 2>/dev/null && echo UNSAFE",
    ),
    _syscall("chroot", 161, "b'/tmp'"),
    _syscall("pivot_root", 155, "b'/tmp'", "b'/tmp'"),
]

MOUNTS = [
    Probe(
        "mount",
        "mkdir -p $SCRATCH/m; mount -t tmpfs none $SCRATCH/m 2>/dev/null && echo UNSAFE; mount --bind / $SCRATCH/m 2>/dev/null && echo UNSAFE",
    ),
    _syscall("mount of a tmpfs", 165, "b'none'", "b'/tmp'", "b'tmpfs'", "0", "0"),
    _syscall(
        "remount of a read-only mount", 165, "b'none'", "os.environb[b'REF']", "0", "32 | 4096", "0"
    ),
    _syscall("remount of the root", 165, "b'none'", "b'/'", "0", "32", "0"),
    _syscall("unmounting what hides", 166, "b'/proc/sys'", "2"),
    _syscall("unmounting a mount", 166, "os.environb[b'OWN']", "2"),
    _syscall("open_tree", 428, "-100", "b'/'", "1"),
    _syscall("fsopen", 430, "b'tmpfs'", "0"),
    _syscall("mount_setattr", 442, "-100", "b'/'", "0", "buffer", "32"),
    _syscall("files by handle", 304, "-100", "buffer", "0"),
    _syscall("a handle of a file", 303, "-100", "b'/'", "buffer", "buffer", "0"),
    Probe(
        "the mount's own name",
        "mv $OWN /workspaces/other 2>/dev/null && echo UNSAFE; rmdir $OWN 2>/dev/null && echo UNSAFE; ln -sfn / $OWN/../w 2>/dev/null && [ -e $OWN/../w/usr ] && echo UNSAFE",
    ),
]

KERNEL = [
    Probe(
        "kernel settings",
        "for f in kernel/core_pattern kernel/hostname vm/overcommit_memory net/ipv4/ip_forward kernel/ns_last_pid; do { echo 1 > /proc/sys/$f; } 2>/dev/null && echo UNSAFE $f; done",
    ),
    Probe("the kernel's keys", "{ echo b > /proc/sysrq-trigger; } 2>/dev/null && echo UNSAFE"),
    Probe("the host's name", "hostname owned 2>/dev/null && echo UNSAFE"),
    Probe("the clock", "date -s 2001-01-01 >/dev/null 2>&1 && echo UNSAFE"),
    _syscall("bpf", 321, "5", "buffer", "128"),
    _syscall("io_uring", 425, "8", "buffer"),
    _syscall("keys", 250, "0", "-3", "0"),
    _syscall("performance counters", 298, "buffer", "0", "-1", "-1", "0"),
    _syscall("userfaultfd", 323, "1"),
    _syscall("a kernel module", 175, "buffer", "0", "b''"),
    _syscall("another kernel", 320, "-1", "-1", "0", "0", "0"),
    _syscall("reboot", 169, "0", "0", "0", "0"),
    _syscall("swap", 167, "b'/tmp/x'", "0"),
    _syscall("a personality", 135, "0x0040000"),
    _syscall("typing into the terminal", 16, "0", "0x5412", "b'x'"),
    _syscall("memory that is no file", 319, "b'x'", "0"),
    _syscall("memory of System V", 29, "0", "4096", "0o1600"),
    _syscall("hiding from those who measure", 157, "4", "0", "0", "0", "0"),
]

NETWORK = [
    _connect(
        "a service of the host",
        "AF_INET",
        '("127.0.0.1", int(os.environ["PORT"]))',
        works_outside=True,
    ),
    _connect(
        "a name in the kernel", "AF_UNIX", '"\\0" + os.environ["ABSTRACT"]', works_outside=True
    ),
    _connect("a socket file", "AF_UNIX", 'os.environ["HOST"] + "/socket"', works_outside=True),
    Probe("the host, by bash", "exec 3<>/dev/tcp/127.0.0.1/$PORT && echo UNSAFE", True),
    Probe(
        "an outside address",
        f"""{PYTHON}
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s: s.connect(("192.0.2.1", 53)); print("UNSAFE")
END""",
    ),
    Probe("interfaces", "[ $(grep -c : /proc/net/dev) -gt 1 ] && echo UNSAFE"),
    _socket("packet", 17),
    _socket("netlink", 16),
    _socket("vsock", 40, "SOCK_STREAM"),
    _socket("alg", 38, "SOCK_SEQPACKET"),
    _socket("raw inet", 2),
]

READ_ONLY = [
    _write("a new file", ": > new"),
    _write("an old file", "echo x >> a.md"),
    _write("truncating", "truncate -s 0 a.md"),
    _write("removing", "rm -f a.md && [ ! -e a.md ]"),
    _write("renaming", "mv a.md b.md"),
    _write("a directory", "mkdir d"),
    _write("a mode", "chmod 777 a.md"),
    _write("an owner", "chown 0 a.md"),
    _write("a time", "touch -d 2001-01-01 a.md"),
    _write("a link", "ln -s / l"),
    _write("a hard link into a writable mount", "ln a.md $SCRATCH/hard"),
    _write("moving it out", "mv a.md $SCRATCH/out && [ ! -e a.md ]"),
    _write(
        "through a link in a writable mount",
        "ln -sfn $REF/a.md $SCRATCH/way && echo x >> $SCRATCH/way",
    ),
    _write("through an open file", "exec 3<a.md; echo x >> /proc/self/fd/3"),
    _write("through the root of a process", "echo x >> /proc/self/root$REF/a.md"),
    Probe(
        "read-only: an attribute",
        f"""{PYTHON}
import os
os.setxattr(os.environ["REF"] + "/a.md", "user.x", b"x"); print("UNSAFE")
END""",
    ),
    Probe(
        "read-only: memory of a file",
        f"""{PYTHON}
import mmap, os
fd = os.open(os.environ["REF"] + "/a.md", os.O_RDONLY)
m = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE); m[0] = 88; print("UNSAFE")
END""",
    ),
]

LIMITS = [
    Probe(
        "more processes",
        "ulimit -u 5000 2>/dev/null && echo UNSAFE; ulimit -n 100000 2>/dev/null && echo UNSAFE",
    ),
    Probe(
        "more memory",
        "ulimit -d unlimited 2>/dev/null && echo UNSAFE; ulimit -f unlimited 2>/dev/null && echo UNSAFE",
    ),
    Probe("no core files", '[ "$(ulimit -Hc)" = 0 ] || echo UNSAFE'),
    Probe(
        "filling shared memory",
        "f=/dev/shm/probe-$$; head -c 3000000 /dev/zero > $f 2>/dev/null && echo UNSAFE; rm -f $f",
        True,
    ),
    Probe(
        "filling /tmp",
        "for n in 1 2 3; do head -c 30000000 /dev/zero > /tmp/$n 2>/dev/null || exit 0; done; rm -f /tmp/[123]; echo UNSAFE",
    ),
    Probe(
        "filling /dev",
        "head -c 3000000 /dev/zero > /dev/x 2>/dev/null && echo UNSAFE; : > /dev/y 2>/dev/null && echo UNSAFE",
    ),
]

PROBES = [
    *HOST_FILES, *OTHERS, *PROCESSES, *POWER, *NAMESPACES, *MOUNTS, *KERNEL, *NETWORK, *READ_ONLY, *LIMITS,
]  # fmt: skip
