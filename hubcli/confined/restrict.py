"""The confinement of a process by itself, for good: Landlock, a seccomp filter, resource limits.

Called in the child, before foreign code and before any thread exists; README.md has the reasons.
Sources: https://docs.kernel.org/userspace-api/landlock.html,
https://docs.kernel.org/userspace-api/seccomp_filter.html.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Landlock: access rights by the ABI that brought them
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_HANDLED = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_SCOPES = 3  # abstract Unix sockets, signals
_NET = 3  # bind and connect of TCP
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446

# prctl and capabilities
_CAPBSET_DROP, _DAC_OVERRIDE, _DAC_READ_SEARCH = 24, 1, 2
_SET_PDEATHSIG, _SET_NO_NEW_PRIVS, _SET_SECCOMP, _SET_CHILD_SUBREAPER = 1, 38, 22, 36

# BPF: load a word, jump if equal / greater / any bit set, return
_LOAD, _EQUAL, _GREATER, _ANY, _AND, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_NEWEST = 466  # calls that are newer than the table below do not exist in the sandbox

# flags of clone: new mount, cgroup, UTS, IPC, user, PID and network namespace
_NAMESPACES = 0x00020000 | 0x7E000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_UNIX = _STREAM = 1
_BUFFERS = (7, 8, 32, 33)  # SO_SNDBUF, SO_RCVBUF and what root has for them
_SET_PIPE_SIZE = 1031

# system call: its number on x86_64 and on aarch64 (None: it has none)
# fmt: off
_CALLS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "bpf": (321, 280),
    "chmod": (90, None), "chown": (92, None), "chroot": (161, 51), "clock_adjtime": (305, 266),
    "clock_settime": (227, 112), "clone": (56, 220), "clone3": (435, 435), "connect": (42, 203),
    "delete_module": (176, 106), "fanotify_init": (300, 262), "fchmod": (91, 52),
    "fchmodat": (268, 53), "fchmodat2": (452, 452), "fchown": (93, 55), "fcntl": (72, 25), "fchownat": (260, 54),
    "finit_module": (313, 273), "fremovexattr": (199, 16), "fsconfig": (431, 431),
    "fsetxattr": (190, 7), "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433),
    "futimesat": (261, None), "init_module": (175, 105), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "io_uring_setup": (425, 425), "ioctl": (16, 29),
    "ioperm": (173, None), "iopl": (172, None), "ioprio_set": (251, 30), "kcmp": (312, 272),
    "kexec_file_load": (320, 294), "kexec_load": (246, 104), "keyctl": (250, 219),
    "kill": (62, 129), "lchown": (94, None), "lremovexattr": (198, 15), "lsetxattr": (189, 6),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "migrate_pages": (256, 238),
    "modify_ldt": (154, None), "mount": (165, 40), "mount_setattr": (442, 442),
    "move_mount": (429, 429), "move_pages": (279, 239), "mq_open": (240, 180),
    "mq_unlink": (241, 181), "msgctl": (71, 187), "msgget": (68, 186), "msgrcv": (70, 188),
    "msgsnd": (69, 189), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "open_tree": (428, 428), "perf_event_open": (298, 241), "personality": (135, 92),
    "pidfd_getfd": (438, 438), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41), "prlimit64": (302, 261), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "ptrace": (101, 117), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "reboot": (169, 142), "removexattr": (197, 14),
    "removexattrat": (466, 466), "request_key": (249, 218), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274), "sched_setparam": (142, 118), "sched_setscheduler": (144, 119),
    "semctl": (66, 191), "semget": (64, 190), "semop": (65, 193), "semtimedop": (220, 192),
    "setdomainname": (171, 162), "sethostname": (170, 161), "setns": (308, 268),
    "setpgid": (109, 154), "setpriority": (141, 140), "setsid": (112, 157), "setsockopt": (54, 208),
    "settimeofday": (164, 170), "setxattr": (188, 5), "setxattrat": (463, 463),
    "shmat": (30, 196), "shmctl": (31, 195), "shmget": (29, 194), "socket": (41, 198),
    "socketpair": (53, 199), "swapoff": (168, 225), "swapon": (167, 224), "syslog": (103, 116),
    "tgkill": (234, 131), "tkill": (200, 130), "truncate": (76, 45), "umount2": (166, 39),
    "unshare": (272, 97), "userfaultfd": (323, 282), "utime": (132, None),
    "utimensat": (280, 88), "utimes": (235, None), "vhangup": (153, 58),
}
# fmt: on

_OFFLINE = "socket connect"
_FORBIDDEN = (
    "ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd pidfd_open process_madvise "
    "process_mrelease migrate_pages move_pages "
    "mount umount2 pivot_root chroot setns unshare open_tree move_mount fsopen fsconfig fsmount "
    "fspick mount_setattr open_by_handle_at name_to_handle_at fanotify_init "
    "bpf perf_event_open userfaultfd add_key request_key keyctl kexec_load kexec_file_load "
    "init_module finit_module delete_module reboot swapon swapoff syslog acct quotactl quotactl_fd "
    "personality iopl ioperm modify_ldt settimeofday clock_settime clock_adjtime adjtimex "
    "sethostname setdomainname vhangup "
    # memory that no limit counts, and system calls that no filter sees
    "memfd_create memfd_secret io_uring_setup io_uring_enter io_uring_register"
)
# What a namespace keeps away in bubblewrap; beside Landlock the filter does.
_SHARED = (
    "truncate setpriority ioprio_set pidfd_send_signal shmget shmat shmctl semget semctl semop semtimedop msgget "
    "msgctl msgsnd msgrcv mq_open mq_unlink"
)
_OF_OTHERS = "setpriority ioprio_set pidfd_send_signal"
_GROUPS = "setsid setpgid"  # the group is what is ended in the end
_METADATA = "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes utimensat futimesat"
_ATTRIBUTES = "setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr setxattrat removexattrat"
_OTHERS = "prlimit64 sched_setaffinity sched_setscheduler sched_setparam sched_setattr"
_SIGNALS = "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo"


@dataclass(frozen=True)
class Limits:
    """The resource limits of the child and of all that it starts.

    `cpu` seconds of processor time per process, `memory` bytes of anonymous memory in all (and a
    process), `tasks` processes and threads in all, `file` bytes a file, `seconds` of wall clock
    (None: any).
    """

    cpu: int = 3600
    memory: int = 1 << 33
    tasks: int = 256
    file: int = 1 << 33
    seconds: float | None = None


@dataclass(frozen=True)
class Confinement:
    """The restrictions that `apply` sets: folders and files to read, folders to write, limits, layers."""

    layers: tuple[str, ...]
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    limits: Limits = Limits()
    listed: tuple[str, ...] = ()


def apply(wanted: Confinement) -> None:
    """Confine this process by the layers `wanted`: landlock, seccomp, limits (namespaces are there already).

    Raises OSError if the kernel refuses one: the caller must then run nothing.
    """
    if sys.platform == "linux":
        _prctl(_SET_PDEATHSIG, 9)
        _prctl(_SET_CHILD_SUBREAPER, 1)
        _prctl(_SET_NO_NEW_PRIVS, 1)
    if "limits" in wanted.layers:
        _limit(wanted.limits)
    if "landlock" in wanted.layers:
        _landlock(wanted)
    if sys.platform == "linux" and "namespaces" not in wanted.layers:
        _drop_capabilities()
    if "seccomp" in wanted.layers:
        _seccomp("landlock" in wanted.layers, "namespaces" not in wanted.layers)


def landlock_abi() -> int:
    """Return the version of Landlock that the running kernel offers; 0 for none."""
    if sys.platform != "linux":
        return 0
    try:
        return max(0, _syscall(_CREATE_RULESET, None, 0, 1))
    except OSError:
        return 0


def seccomp_reason() -> str | None:
    """Return why the filter cannot be used here; None if it can."""
    if sys.platform != "linux":
        return f"{sys.platform} has no seccomp"
    if platform.machine() not in _ARCHITECTURES or sys.byteorder != "little":
        return f"no filter is written for {platform.machine()}"
    try:  # SECCOMP_GET_ACTION_AVAIL of SECCOMP_RET_ERRNO: changes nothing
        number = 317 if platform.machine() == "x86_64" else 277
        _syscall(number, 2, 0, ctypes.byref(ctypes.c_uint32(_ERRNO)))
    except OSError as error:
        return f"the kernel has no seccomp filters ({error.strerror})"
    return None


def _limit(limits: Limits) -> None:
    import resource

    def bound(kind: int, soft: int, hard: int | None = None) -> None:
        hard = soft if hard is None else hard
        _, ceiling = resource.getrlimit(kind)
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(kind, (soft, hard))

    bound(resource.RLIMIT_CORE, 0)
    bound(resource.RLIMIT_CPU, limits.cpu, limits.cpu + 2)  # SIGXCPU first, then SIGKILL
    bound(resource.RLIMIT_FSIZE, limits.file)
    bound(resource.RLIMIT_NOFILE, 256)
    if sys.platform == "linux":
        # Anonymous memory; RLIMIT_AS would count what BLAS and CUDA reserve and never touch.
        bound(resource.RLIMIT_DATA, limits.memory)
        # Counted for the user (before Linux 5.14 across namespaces), so that what runs already is
        # allowed for; root is never held to it.  `supervise` counts the child's own.
        bound(resource.RLIMIT_NPROC, limits.tasks + _tasks_of_the_system())


def _tasks_of_the_system() -> int:
    try:
        with open("/proc/loadavg", encoding="ascii") as file:
            return int(file.read().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 4096


# Landlock


def _landlock(wanted: Confinement) -> None:
    abi = landlock_abi()
    if abi < 1:
        raise OSError(errno.EOPNOTSUPP, "the kernel offers no Landlock")
    handled = _HANDLED[max(level for level in _HANDLED if level <= abi)]
    fields = [handled] + [_NET] * (abi >= 4) + [_SCOPES] * (abi >= 6)
    attribute = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = _syscall(_CREATE_RULESET, attribute, len(attribute), 0)
    try:
        for path in wanted.read:
            _allow(ruleset, path, _READ & handled)
        for path in wanted.listed:
            if os.path.isdir(path):
                _allow(ruleset, path, _READ_DIR)
        for path in wanted.write:
            _allow(ruleset, path, handled & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV))
        for path in wanted.devices:
            _allow(ruleset, path, handled & (_READ | _WRITE_FILE | _IOCTL_DEV))
        _syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    """Allow `access` beneath `path`; a path that is not there needs no rule."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not os.path.isdir(path):
                access &= _OF_FILES
            _syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", access, opened), 0)
        finally:
            os.close(opened)


# seccomp


def _drop_capabilities() -> None:
    """Let root in the sandbox be no more than any user, but for reading and writing what Landlock allows.

    What it keeps, and all that it executes, is held to the limits of memory and of sockets under way.
    """
    if os.geteuid() != 0:
        return
    kept = (1 << _DAC_OVERRIDE) | (1 << _DAC_READ_SEARCH)
    for number in range(64):
        if not kept >> number & 1:
            with contextlib.suppress(OSError):  # beyond the last, or not ours to drop
                _prctl(_CAPBSET_DROP, number)
    header = struct.pack("=Ii", 0x20080522, 0)
    data = struct.pack("=6I", kept, kept, 0, 0, 0, 0)
    _syscall(126 if platform.machine() == "x86_64" else 91, header, data)


def _seccomp(files: bool, alone: bool) -> None:
    """Install the filter; `alone` without namespaces, `files` beside Landlock."""
    program = b"".join(_program(files, alone))
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    _prctl(_SET_SECCOMP, 2, header)


def _program(files: bool, alone: bool) -> Iterator[bytes]:
    """Yield the filter as BPF instructions: what is not named is allowed."""
    column, architecture = _ARCHITECTURES[platform.machine()]

    def step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("=HBBI", code, yes, no, value)

    def answer(number: int) -> bytes:
        return step(_RETURN, _ERRNO | number)

    def numbers(names: str) -> Iterator[int]:
        for name in names.split():
            number = _CALLS[name][column]
            if number is not None:
                yield number

    def refuse(names: str, error: int) -> Iterator[bytes]:
        for number in numbers(names):
            yield step(_EQUAL, number, 0, 1)
            yield answer(error)

    def check(name: str, argument: int, tests: Sequence[bytes], error: int) -> Iterator[bytes]:
        """Refuse the call if one of the tests leads to the next instruction but one."""
        for number in numbers(name):
            # tests are pairs: a jump over the refusal, the refusal
            yield step(_EQUAL, number, 0, len(tests) * 2 + 2)
            yield step(_LOAD, 16 + 8 * argument)
            for test in tests:
                yield test
                yield answer(error)
            yield step(_RETURN, _ALLOW)

    def only(names: str, argument: int, values: Sequence[int], error: int) -> Iterator[bytes]:
        """Refuse the calls unless the argument is one of the values."""
        for number in numbers(names):
            yield step(_EQUAL, number, 0, len(values) + 3)
            yield step(_LOAD, 16 + 8 * argument)
            for index, value in enumerate(values):
                yield step(_EQUAL, value, len(values) - index, 0)
            yield answer(error)
            yield step(_RETURN, _ALLOW)

    yield step(_LOAD, 4)
    yield step(_EQUAL, architecture, 1, 0)
    yield step(_RETURN, _KILL)
    yield step(_LOAD, 0)
    yield step(_GREATER, _NEWEST, 0, 1)
    yield answer(errno.ENOSYS)
    # clone3 hides its flags from a filter; the C library then uses clone.
    yield from refuse("clone3", errno.ENOSYS)
    yield from refuse(_OFFLINE, errno.ENETUNREACH)
    yield from refuse(_FORBIDDEN, errno.EPERM)
    yield from check("clone", 0, [step(_ANY, _NAMESPACES, 0, 1)], errno.EPERM)
    yield from check("ioctl", 1, [step(_EQUAL, _TIOCSTI, 0, 1), step(_EQUAL, _TIOCLINUX, 0, 1)], errno.EPERM)
    # Streams only: the ends of a pair of datagrams can send to every socket that has a name.
    for number in numbers("socketpair"):
        yield step(_EQUAL, number, 0, 7)
        yield step(_LOAD, 16)
        yield step(_EQUAL, _UNIX, 0, 4)
        yield step(_LOAD, 24)
        yield step(_AND, ~(os.O_NONBLOCK | os.O_CLOEXEC) & 0xFFFFFFFF)
        yield step(_EQUAL, _STREAM, 0, 1)
        yield step(_RETURN, _ALLOW)
        yield answer(errno.ENETUNREACH)
    # Memory of the kernel that no limit counts: what sockets and pipes may hold stays as it is.
    yield from check("setsockopt", 2, [step(_EQUAL, one, 0, 1) for one in _BUFFERS], errno.EPERM)
    yield from check("fcntl", 1, [step(_EQUAL, _SET_PIPE_SIZE, 0, 1)], errno.EPERM)
    own = (0, os.getpid())
    if alone:
        yield from refuse(_GROUPS, errno.EPERM)
    if alone and not files:
        # Nothing else keeps hub's own process from it.
        yield from refuse(_OF_OTHERS, errno.EPERM)
        yield from only(_OTHERS, 0, own, errno.EPERM)
        spared = {-1, os.getppid(), -os.getpgid(os.getppid())}  # what code has started itself, it may end
        tests = [step(_EQUAL, one & 0xFFFFFFFF, 0, 1) for one in sorted(spared)]
        yield from check(_SIGNALS, 0, tests, errno.EPERM)
    if files:
        yield from refuse(_SHARED, errno.EPERM)
        # Landlock does not hold back changes of metadata; the calls say yes and do nothing, for
        # copying a file ends with them.
        yield from refuse(_METADATA, 0)
        yield from refuse(_ATTRIBUTES, errno.EOPNOTSUPP)
        yield from only(_OTHERS, 0, own, errno.EPERM)
        if landlock_abi() < 6:
            yield from only(_SIGNALS, 0, own, errno.EPERM)
    yield step(_RETURN, _ALLOW)


# System calls


def _syscall(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = int(libc.syscall(ctypes.c_long(number), *words))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _prctl(option: int, value: int, pointer: object = 0) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    word = ctypes.c_ulong(pointer) if isinstance(pointer, int) else pointer
    zero = ctypes.c_ulong(0)
    if libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), word, zero, zero) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
