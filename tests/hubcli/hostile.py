"""A repository that tries what a sandbox must not let happen, and reports what came of it."""

from __future__ import annotations

HUBCONF = r'''
import ctypes, json, mmap, os, socket, subprocess, sys, tempfile, threading, time

dependencies = ["torch"]
libc = ctypes.CDLL(None, use_errno=True)


def _syscall(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _write(path):
    with open(path, "w") as file:
        file.write("x")


def _read(path):
    with open(path, "rb") as file:
        return file.read(64).decode("latin1")


def _try(what):
    try:
        return f"done: {what()}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


def probe(facts):
    """Try everything; print one line of JSON."""
    with open(facts) as file:
        facts = json.load(file)
    home, secret = facts["home"], facts["secret"]
    here = os.path.dirname(__file__)
    tries = {
        "tcp": lambda: socket.create_connection(("127.0.0.1", facts["port"]), 2),
        "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9)),
        "unix": lambda: socket.socket(socket.AF_UNIX).connect(facts["unix"]),
        "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0),
        "io_uring": lambda: _syscall(425, 4, 0),
        "child_tcp": lambda: subprocess.run(
            [sys.executable, "-I", "-S", "-c", "import socket; socket.create_connection(('127.0.0.1', %d), 2)"
             % facts["port"]], check=True, capture_output=True),
        "read_home": lambda: _read(secret),
        "list_home": lambda: os.listdir(home),
        "read_home_through_proc": lambda: _read("/proc/self/root" + secret),
        "child_read_home": lambda: subprocess.run(["cat", secret], check=True, capture_output=True),
        "read_passwd": lambda: _read("/etc/passwd"),
        "read_cache": lambda: _read(facts["cache"] + "/trust.json"),
        "read_parent": lambda: _read(f"/proc/{facts['parent']}/environ"),
        "token": lambda: os.environ["HUB_TOKEN"],
        "write_home": lambda: _write(home + "/new"),
        "overwrite_home": lambda: _write(secret),
        "truncate_home": lambda: os.truncate(secret, 0),
        "remove_home": lambda: os.remove(secret),
        "rename_home": lambda: os.rename(secret, secret + ".away"),
        "link_home": lambda: os.link(secret, "linked"),
        "chmod_home": lambda: os.chmod(secret, 0o777),
        "touch_home": lambda: os.utime(secret, (1, 1)),
        "write_checkout": lambda: _write(here + "/new.py"),
        "write_python": lambda: _write(os.path.dirname(json.__file__) + "/new.py"),
        "write_inbox": lambda: _write(os.path.join(os.path.dirname(os.getcwd()), "inbox", "new")),
        "write_tmp": lambda: _write("/tmp/" + facts["unique"]),
        "write_dev_shm": lambda: _write("/dev/shm/" + facts["unique"]),
        "mknod": lambda: os.mknod("device", 0o600 | 0o020000, os.makedev(1, 1)),
        "signal_parent": lambda: os.kill(facts["parent"], 0),
        "ptrace_parent": lambda: _syscall(101 if os.uname().machine == "x86_64" else 117, 16, facts["parent"], 0, 0),
        "user_namespace": lambda: _syscall(272 if os.uname().machine == "x86_64" else 97, 0x10000000),
        "memfd": lambda: os.memfd_create("x"),
        "mount": lambda: _syscall(165 if os.uname().machine == "x86_64" else 40, 0, 0, 0, 0, 0),
        "terminal": lambda: os.open("/dev/tty", os.O_RDWR),
        "scratch": lambda: (_write("own"), _read("own"), tempfile.NamedTemporaryFile().name),
        "socketpair": lambda: [one.close() for one in socket.socketpair()],
        "own_chmod": lambda: os.chmod("own", 0o600),
        "subprocess": lambda: subprocess.run(["true"], check=True),
        "thread": lambda: threading.Thread(target=int).start(),
        "raise_signal": lambda: os.kill(os.getpid(), 0),
    }
    print("EVIDENCE " + json.dumps({name: _try(what) for name, what in tries.items()}), flush=True)
    return {}


def net():
    """A model."""
    import torch
    torch.manual_seed(0)
    return torch.nn.Linear(2, 3)


def spins():
    while True:
        pass


def sleeps():
    time.sleep(600)


def eats(shared=False):
    kept = []
    while True:
        if shared:
            block = mmap.mmap(-1, 16 << 20)
            for offset in range(0, 16 << 20, 4096):
                block[offset] = 1
            kept.append(block)
        else:
            kept.append(bytearray(b"x") * (16 << 20))


def forks():
    while True:
        if os.fork() == 0:
            time.sleep(600)


def leaves_a_child(marker):
    if os.fork() == 0:
        try:
            os.setsid()
        except OSError:
            pass
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", marker])
        os._exit(0)
    return {}


def exits():
    os._exit(3)


def kills_itself():
    os.kill(os.getpid(), 9)


def crashes():
    ctypes.string_at(0)


def floods():
    while True:
        os.write(2, b"x" * 65536)


def _pipes():
    """The descriptors of the pipes to the parent."""
    import stat
    printed = os.fstat(2).st_ino
    for name in os.listdir("/proc/self/fd"):
        try:
            status = os.fstat(int(name))
            if stat.S_ISFIFO(status.st_mode) and status.st_ino != printed:
                yield int(name)
        except OSError:
            pass


def forges(text):
    for descriptor in _pipes():
        try:
            os.write(descriptor, text.encode("latin1"))
        except OSError:
            pass
    time.sleep(600)


def closes():
    for descriptor in _pipes():
        os.close(descriptor)
    os.close(1), os.close(2)
    time.sleep(600)


def asks_and_never_listens():
    import struct
    text = json.dumps({"ask": "fetch", "url": "gopher://example.invalid/" + "x" * 1000}).encode()
    for descriptor in _pipes():
        try:
            while True:
                os.write(descriptor, struct.pack("<I", len(text)) + text)
        except OSError:
            pass
    time.sleep(600)


def swaps(what):
    """Leave something else than the tensors that were asked for."""
    from hubcli.running import invoke

    def save(result, path):
        if what == "link":
            os.symlink("/etc/passwd", path)
        elif what == "pipe":
            os.mkfifo(path)
        else:
            import pickle
            with open(path, "wb") as file:
                pickle.dump({"weight": [1, 2]}, file)

    invoke.save_state_dict = save
    return net()


def weighted(url):
    import torch
    model = net()
    model.load_state_dict(torch.hub.load_state_dict_from_url(url, progress=False))
    return model


def downloads(url, dst="weights.bin"):
    import torch
    torch.hub.download_url_to_file(url, dst, progress=False)
    with open(dst, "rb") as file:
        print("SIZE", len(file.read()), flush=True)
    return net()


def retrieves(url):
    from urllib.request import urlretrieve
    name, headers = urlretrieve(url)
    print("SIZE", os.path.getsize(name), flush=True)
    return net()


def nested(repo, entrypoint, *args):
    import torch
    return torch.hub.load(repo.rstrip("|"), entrypoint, *args)


def reaches(host="example.invalid"):
    import urllib.request
    urllib.request.urlopen(f"http://{host}/")


def colours():
    print("\x1b[31mred\x1b[0m", flush=True)
    return net()
'''
