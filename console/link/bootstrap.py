"""What runs first on a host: stdlib only, sent on the command line, read by any Python 3.8 or newer.

It unpacks the release that the console wants if the host lacks it, finds an interpreter that has what the host side needs, and
becomes `python -m remote VERB` on the same standard input and output. Never imported by the console: its source is sent.
"""


def main(parameters):
    """Carry out the bootstrap; `parameters` has `root`, `sha256`, `python`, `modules`, `marker`, `verb` and `rest`."""
    import hashlib
    import io
    import json
    import os
    import shutil
    import subprocess
    import sys
    import tarfile
    import tempfile

    def say(word, **details):
        line = "\n" + parameters["marker"] + " " + word + " " + json.dumps(details) + "\n"
        os.write(1, line.encode())

    def read_exactly(count):
        blocks = []
        while count:
            block = os.read(0, min(count, 1 << 20))
            if not block:
                raise OSError("the console hung up during the upload")
            blocks.append(block)
            count -= len(block)
        return b"".join(blocks)

    def unpack(release):
        size = int(read_exactly(16))
        payload = read_exactly(size)
        if hashlib.sha256(payload).hexdigest() != parameters["sha256"]:
            raise OSError("the upload arrived damaged")
        part = tempfile.mkdtemp(prefix=".release-", dir=os.path.dirname(release))
        with tarfile.open(fileobj=io.BytesIO(payload), mode="r:gz") as archive:
            archive.extractall(part)
        for directory, _, names in os.walk(part):
            for path in [directory, *(os.path.join(directory, name) for name in names)]:
                descriptor = os.open(path, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)
        try:
            os.rename(part, release)
        except OSError:
            shutil.rmtree(part)
            if not os.path.isdir(os.path.join(release, "remote")):
                raise

    def lacking(python):
        check = (
            "import importlib.util,json,sys;"
            "m=[n for n in sys.argv[1:] if importlib.util.find_spec(n) is None];"
            "m+=['Python 3.10 or newer'] if sys.version_info<(3,10) else [];"
            "print(json.dumps(m))"
        )
        try:
            done = subprocess.run(
                [python, "-I", "-c", check, *parameters["modules"]], check=False, stdout=-1, stderr=-3, timeout=60
            )
            return json.loads(done.stdout)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            return ["it does not run (%s)" % error]

    def find_python():
        wanted = parameters["python"]
        own = os.path.join(root, "env/bin/python")
        usual = [own, sys.executable, "python3.11", "python3.12", "python3.13", "python3.10", "python3"]
        names = [wanted] if wanted else usual
        looked = {}
        for name in names:
            python = shutil.which(os.path.expanduser(name))
            if python is None:
                if name != own:
                    looked[name] = ["not found"]
                continue
            missing = lacking(python)
            if not missing:
                return python
            looked[python] = missing
        say("no-python", looked=looked)
        sys.exit(1)

    try:
        root = os.path.abspath(os.path.expanduser(parameters["root"]))
        if not os.path.isdir(root):
            os.makedirs(root, mode=0o700)
            os.chmod(root, 0o700)
        os.makedirs(os.path.join(root, "releases"), mode=0o700, exist_ok=True)
        release = os.path.join(root, "releases", parameters["sha256"])
        have = os.path.isdir(os.path.join(release, "remote"))
        if have:
            os.utime(release)  # in use again: the host removes what nobody asked for lately
        say("have" if have else "need")
        if not have:
            unpack(release)
        python = find_python()
        environment = dict(os.environ, PYTHONPATH=release, PYTHONUNBUFFERED="1")
        os.chdir(root)
        os.execve(
            python, [python, "-m", "remote", parameters["verb"], "--root", root, *parameters["rest"]], environment
        )
    except OSError as error:
        say("error", message=str(error))
        sys.exit(1)
