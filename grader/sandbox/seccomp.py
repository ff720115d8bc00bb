"""A filter of system calls (seccomp(2)): calls that a student's code does not need, but that could be used for an
attack, fail.

The filter is classic BPF. The numbers are those of <asm/unistd.h> on x86-64 and aarch64; there is no filter for other
architectures.
"""

import ctypes
import errno
import os
import signal
import struct

from grader.sandbox import kernel

ARCHITECTURES = {"x86-64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_* of <linux/audit.h>
FOREIGN = 0x40000000  # on x86-64, calls of the x32 ABI have numbers from here on

# name: number on x86-64, on aarch64
DENIED = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "setrlimit": (160, 164),  # at its own limit, a rank would be killed by the kernel, as if by the machine
    # mounts and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # large and often attacked parts of the kernel
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "userfaultfd": (323, 282),
    "personality": (135, 92),
    "modify_ldt": (154, None),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    # memory that no limit of a process counts
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    # signals that the kernel sends later, of any number
    "timer_create": (222, 107),
    "mq_open": (240, 180),
    "mq_notify": (244, 184),
    # functions of the machine
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "vhangup": (153, 58),
}
SOCKET, CLONE, CLONE3, IOCTL, PRLIMIT, FCNTL = (41, 198), (56, 220), (435, 435), (16, 29), (302, 261), (72, 25)
# kill, and other calls that send a signal: numbers, and the position of the signal among the arguments
SIGNAL = (62, 129)
RARE_SIGNALS = {
    "tkill": ((200, 130), 1),
    "tgkill": ((234, 131), 2),
    "rt_sigqueueinfo": ((129, 138), 1),
    "rt_tgsigqueueinfo": ((297, 240), 2),
    "pidfd_send_signal": ((424, 424), 1),
}
UNIX, INTERNET, INTERNET6, NETLINK = 1, 2, 10, 16  # socket families; gloo asks netlink for the network interfaces
NEW_NAMESPACES = 0x7E020000  # CLONE_NEW*: all of them
SET_SIGNAL = 10  # F_SETSIG: the signal that a readable file sends
TYPING = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: input to the grader's terminal

# <linux/bpf_common.h>, <linux/seccomp.h>
LOAD, AND, EQUAL, AT_LEAST, ANY_OF, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, FAIL = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER, ARCHITECTURE, ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data; arguments of 8 bytes, low half first
SET_SECCOMP, FILTER = 22, 2  # prctl


def supported():
    """Raise OSError if the kernel has no filters, or if this module has none for the architecture."""
    if kernel.ARCHITECTURE not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, "no filter is written for this architecture")
    kernel.libc.prctl(SET_SECCOMP, FILTER, None, 0, 0)  # always fails; the error shows whether the kernel has filters
    if ctypes.get_errno() not in (errno.EFAULT, errno.EACCES):
        raise OSError(errno.ENOSYS, "the kernel was built without them")


def install(others=()):
    """Install the filter permanently for this process and all its later children. others: processes that it may not
    end."""
    program = filter_for(kernel.ARCHITECTURE, sorted({os.getpid(), os.getppid(), *others}))
    buffer = ctypes.create_string_buffer(program)
    kernel.prctl(kernel.NO_NEW_PRIVILEGES, 1)
    header = struct.pack("H6xP", len(program) // 8, ctypes.addressof(buffer))
    kernel.checked(kernel.libc.prctl(SET_SECCOMP, FILTER, header, 0, 0), "seccomp")


def filter_for(architecture, protected=()):
    """Return the filter's BPF program, as bytes. protected: the numbers of processes to which no process may send
    SIGKILL."""
    own = list(ARCHITECTURES).index(architecture)
    code = [_load(ARCHITECTURE), _jump(EQUAL, ARCHITECTURES[architecture], 1, 0), _return(KILL), _load(NUMBER)]
    if architecture == "x86-64":
        code += [_jump(AT_LEAST, FOREIGN, 0, 1), _fail(errno.EPERM)]
    for number in (numbers[own] for numbers in DENIED.values() if numbers[own] is not None):
        code += [_jump(EQUAL, number, 0, 1), _fail(errno.EPERM)]
    # its flags are behind a pointer, which filters cannot read; libraries then use clone
    code += [_jump(EQUAL, CLONE3[own], 0, 1), _fail(errno.ENOSYS)]
    # the signal to the parent, when the new process ends
    last_signal = [_instruction(AND, 0xFF), *_jumps((0, signal.SIGCHLD), [_return(ALLOW)]), _fail(errno.EPERM)]
    code += _when(CLONE[own], [_load(ARGUMENT), _jump(ANY_OF, NEW_NAMESPACES, 0, 1), _fail(errno.EPERM), *last_signal])
    # the process (0 for itself), and both halves of a pointer to new limits (0 for none)
    parts = (ARGUMENT, ARGUMENT + 16, ARGUMENT + 20)
    code += _when(
        PRLIMIT[own], [step for part in parts for step in (_load(part), _jump(EQUAL, 0, 1, 0), _fail(errno.EPERM))]
    )
    # SIGKILL: a rank may end its own children, but not itself, its parent or other ranks, by their numbers. So if one
    # of these is killed, the system has done it, or code that used the number of a thread, which no filter can detect.
    to_group = [_jump(EQUAL, 0, 0, 1), _fail(errno.EPERM), _jump(AT_LEAST, 1 << 31, 0, 1), _fail(errno.EPERM)]
    targets = [
        _load(ARGUMENT),
        *to_group,
        *(step for pid in protected for step in (_jump(EQUAL, pid, 0, 1), _fail(errno.EPERM))),
    ]
    code += _when(SIGNAL[own], [_load(ARGUMENT + 8), _jump(EQUAL, signal.SIGKILL, 0, len(targets)), *targets])
    for numbers, place in RARE_SIGNALS.values():
        code += _when(
            numbers[own], [_load(ARGUMENT + 8 * place), _jump(EQUAL, signal.SIGKILL, 0, 1), _fail(errno.EPERM)]
        )
    code += _when(FCNTL[own], [_load(ARGUMENT + 8), _jump(EQUAL, SET_SIGNAL, 0, 1), _fail(errno.EPERM)])
    code += _when(IOCTL[own], [_load(ARGUMENT + 8), *_jumps(TYPING, [_fail(errno.EPERM)])])
    others = [
        _load(ARGUMENT),
        *_jumps((UNIX, INTERNET, INTERNET6), [_return(ALLOW)]),
        _jump(EQUAL, NETLINK, 0, 2),
        _load(ARGUMENT + 16),
        _jump(EQUAL, 0, 1, 0),
        _fail(errno.EAFNOSUPPORT),
    ]
    code += _when(SOCKET[own], others)
    return b"".join([*code, _return(ALLOW)])


def _when(number, then):
    """Return instructions: if the call has this number, run `then`, and after that allow the call."""
    return [_jump(EQUAL, number, 0, len(then) + 1), *then, _return(ALLOW)]


def _jumps(values, then):
    """Return instructions: if the loaded number is one of `values`, run `then`."""
    return [
        _jump(EQUAL, value, len(values) - 1 - place, 0 if place < len(values) - 1 else len(then))
        for place, value in enumerate(values)
    ] + then


def _instruction(code, value, if_true=0, if_false=0):
    return struct.pack("HBBI", code, if_true, if_false, value)


def _load(offset):
    return _instruction(LOAD, offset)


def _jump(test, value, if_true, if_false):
    """Return an instruction that compares the loaded number with `value`, and skips `if_true` or `if_false`
    instructions."""
    return _instruction(test, value, if_true, if_false)


def _return(action):
    return _instruction(RETURN, action)


def _fail(number):
    return _return(FAIL | number)
