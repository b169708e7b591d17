"""What `roost hosts check` runs on a host: stdlib only, sent on the command line, read by any Python 3.8 or newer.

It looks and touches nothing but small files below the root, which it removes again. Never imported by the console: its
source is sent.
"""


def candidates(root, wanted):
    """Every interpreter that may be of use: the configured one, Roost's own, the PATH's, and those of usual environments."""
    import glob
    import os
    import shutil
    import sys

    names = ["python3", "python3.10", "python3.11", "python3.12", "python3.13", "python3.14"]
    patterns = [
        "~/.venv/bin/python",
        "~/venv/bin/python",
        "~/*/.venv/bin/python",
        "/opt/*/bin/python3",
        "/opt/conda/envs/*/bin/python",
        "~/*conda3/bin/python",
        "~/*conda3/envs/*/bin/python",
        "/usr/local/bin/python3",
        "/workspace/*/bin/python",
        "/venv/*/bin/python",
    ]
    found = [os.path.expanduser(wanted)] if wanted else []
    found += [os.path.join(root, "env/bin/python"), sys.executable]
    found += [path for path in map(shutil.which, names) if path]
    for pattern in patterns:
        found += sorted(glob.glob(os.path.expanduser(pattern)))
    seen = {}
    for path in found:
        if os.access(path, os.X_OK):
            # An environment's interpreter is a link to another one, so the directory tells them apart.
            place = os.path.realpath(os.path.dirname(path))
            seen.setdefault((place, os.path.realpath(path)), path)
    return list(seen.values())


def look_at_python(python, packages):
    """The version of an interpreter and of each package in it, None for what it lacks."""
    import json
    import subprocess

    program = (
        "import json,sys,importlib.metadata as m\n"
        "def v(n):\n"
        " try: return m.version(n)\n"
        " except m.PackageNotFoundError: return None\n"
        "print(json.dumps([sys.version.split()[0],{n:v(n) for n in sys.argv[1:]}]))"
    )
    try:
        done = subprocess.run([python, "-I", "-c", program, *packages], check=False, stdout=-1, stderr=-1, timeout=60)
        version, found = json.loads(done.stdout)
    except ValueError:
        words = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        return {"path": python, "version": None, "packages": {}, "error": words[0] if words else "it says nothing"}
    except (OSError, subprocess.SubprocessError) as error:
        return {"path": python, "version": None, "packages": {}, "error": str(error)}
    return {"path": python, "version": version, "packages": found, "error": None}


def look_at_root(root):
    """What the file system of the root can do, tried with small files."""
    import os
    import shutil
    import tempfile

    existing = root
    while not os.path.isdir(existing):
        existing = os.path.dirname(existing)
    space = os.statvfs(existing)
    facts = {
        "path": root,
        "exists": os.path.isdir(root),
        "file_system": file_system_of(existing),
        "free_bytes": space.f_bavail * space.f_frsize,
        "free_inodes": space.f_favail if space.f_files else None,
        "noexec": bool(space.f_flag & os.ST_NOEXEC),
        "error": None,
        "abilities": {},
    }
    try:
        scratch = tempfile.mkdtemp(prefix=".roost-check-", dir=existing)
    except OSError as error:
        facts["error"] = str(error)
        return facts
    try:
        facts["abilities"] = try_abilities(scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return facts


def file_system_of(path):
    """The type of the mount that `path` is on."""
    import os

    best = ("", "unknown")
    with open("/proc/self/mounts") as mounts:
        for line in mounts:
            _, point, kind, _ = line.split(" ", 3)
            point = point.replace("\\040", " ")
            if os.path.commonpath([point, os.path.realpath(path)]) == point and len(point) >= len(best[0]):
                best = (point, kind)
    return best[1]


def try_abilities(scratch):
    """Each thing that jobs rely on: whether it works."""
    import ctypes
    import fcntl
    import os

    libc = ctypes.CDLL(None, use_errno=True)
    file, other = os.path.join(scratch, "a"), os.path.join(scratch, "b")

    def write():
        with open(file, "wb") as out:
            out.write(b"x" * 8192)
            out.flush()
            os.fsync(out.fileno())

    def lock():
        with open(file, "rb") as one:
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def link():
        os.link(file, other)
        os.unlink(other)

    def rename():
        if libc.renameat2(-100, file.encode(), -100, other.encode(), 1) != 0:
            raise OSError(ctypes.get_errno(), "renameat2")
        os.rename(other, file)

    def punch():
        with open(file, "r+b") as out:
            if libc.fallocate(out.fileno(), 3, ctypes.c_longlong(0), ctypes.c_longlong(4096)) != 0:
                raise OSError(ctypes.get_errno(), "fallocate")

    results = {}
    for name, trial in (
        ("durable_writes", write),
        ("locks", lock),
        ("write_once", link),
        ("rename_without_replacing", rename),
        ("holes", punch),
    ):
        try:
            trial()
            results[name] = True
        except OSError:
            results[name] = False
    return results


def look_at_machine():
    """Cores, memory, devices, and whether this is a container."""
    import glob
    import os
    import platform
    import resource
    import time

    memory = {}
    with open("/proc/meminfo") as lines:
        for line in lines:
            name, value = line.split(":")
            memory[name] = int(value.split()[0]) * 1024
    shm = os.statvfs("/dev/shm") if os.path.isdir("/dev/shm") else None
    driver = None
    if os.path.exists("/proc/driver/nvidia/version"):
        with open("/proc/driver/nvidia/version") as text:
            driver = text.readline().strip()
    with open("/proc/1/cgroup") as text:
        contained = os.path.exists("/.dockerenv") or "docker" in text.read()
    return {
        "system": platform.platform(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory["MemTotal"],
        "shm_bytes": shm.f_blocks * shm.f_frsize if shm else None,
        "gpus": len(glob.glob("/dev/nvidia[0-9]*")),
        "gpu_driver": driver,
        "open_files_limit": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "container": contained,
        "clock": time.time(),
    }


def main(parameters):
    """Look and say; `parameters` has `root`, `python`, `packages` and `marker`."""
    import json
    import os
    import sys

    root = os.path.abspath(os.path.expanduser(parameters["root"]))
    report = {
        "machine": look_at_machine(),
        "root": look_at_root(root),
        "pythons": [look_at_python(path, parameters["packages"]) for path in candidates(root, parameters["python"])],
        "python_here": sys.version.split()[0],
    }
    os.write(1, ("\n" + parameters["marker"] + " report " + json.dumps(report) + "\n").encode())
