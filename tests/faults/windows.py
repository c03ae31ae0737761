"""What Python lacks on Windows, taken away from a process on Linux: `pretend`, before pujax.

What packages of others do on Windows is theirs, and not looked at: where they ask which system it
is, they are told Linux, and need what it has when they are imported.
"""

import importlib
import os
import signal
import sys
import time
import types

MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
_OS = (
    *("chown", "confstr", "fork", "forkpty", "getegid", "geteuid", "getgid", "getloadavg"),
    *("getpgid", "getuid", "killpg", "mkfifo", "nice", "posix_fadvise", "pread", "sendfile"),
    *("sched_getaffinity", "setsid", "statvfs", "sysconf", "uname", "wait"),
)
_SIGNALS = ("SIGALRM", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGUSR1", "SIGUSR2", "alarm")
_PACKAGES = (
    *("jax", "flax", "optax", "orbax.checkpoint", "pandas", "scipy.stats", "matplotlib.pyplot"),
)


def pretend(*, trains=True):
    """Takes it away, and refuses what Windows refuses.

    `trains` is whether the process is to train, for which it imports packages of others.
    """
    for name in ("numpy", *_PACKAGES * trains):
        importlib.import_module(name)
    for name in MODULES:
        sys.modules[name] = None
    for name in _OS:
        delattr(os, name)
    for name in _SIGNALS:
        delattr(signal, name)
    del time.tzset
    os.kill = _no_question
    sys.modules["_winapi"] = types.SimpleNamespace(
        SYNCHRONIZE=0x100000,
        WAIT_TIMEOUT=258,
        OpenProcess=_open_process,
        WaitForSingleObject=lambda handle, wait: 258 if os.path.exists(f"/proc/{handle}") else 0,
        CloseHandle=lambda handle: None,
    )
    sys.addaudithook(_refuse)


def _no_question(pid, number):
    raise AssertionError(f"process {pid} would be sent Ctrl+C by {number}")


def _open_process(access, inherits, pid):
    if not os.path.exists(f"/proc/{pid}"):
        raise OSError(22, "The parameter is incorrect")
    return pid


def _refuse(event, args):
    """What is open is neither deleted nor renamed, and pujax finds no /proc."""
    if event == "open" and str(args[0]).startswith("/proc/") and _is_of_pujax(sys._getframe(1)):
        raise FileNotFoundError(2, "No such file or directory", args[0])
    paths = {"os.remove": args[:1], "os.rename": args[:2]}.get(event, ())
    for path in map(os.path.realpath, paths):
        if path in open_files():
            raise PermissionError(13, "The process cannot access the file: it is in use", path)


def _is_of_pujax(frame):
    while "pathlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return "/pujax/" in frame.f_code.co_filename


def open_files():
    """Paths of what this process has open."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:  # that of the folder, by now
            continue
    return found
