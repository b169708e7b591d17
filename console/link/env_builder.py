"""What `roost hosts prepare` runs on a host: stdlib only, sent on the command line, read by any Python 3.8 or newer.

It makes `ROOT/env`, an environment of Roost's own, aside and whole before it gets its name. Never imported by the console:
its source is sent.
"""


def main(parameters):
    """Build; `parameters` has `root`, `python`, `requirements`, `borrow` (a directory of packages to see, or None) and `marker`."""
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

    def run(*command):
        sys.stdout.write("$ " + " ".join(command) + "\n")
        sys.stdout.flush()
        if subprocess.run(command, check=False, stdin=-3, stderr=-2).returncode != 0:
            raise OSError("this failed: " + " ".join(command))

    def read_exactly(count):
        blocks = []
        while count:
            block = os.read(0, min(count, 1 << 20))
            if not block:
                raise OSError("the console hung up")
            blocks.append(block)
            count -= len(block)
        return b"".join(blocks)

    def install(python, part):
        pip = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--quiet"]
        try:
            run(*pip, *parameters["requirements"])
        except OSError:
            ask = "import sys;print('%d.%d' % sys.version_info[:2])"
            version = subprocess.run([python, "-c", ask], check=True, stdout=-1)
            say("need-wheels", python=version.stdout.decode().strip(), machine=os.uname().machine)
            size = int(read_exactly(16))
            if not size:
                raise
            wheels = os.path.join(part, "wheels")
            archive = os.path.join(part, "wheels.tar")
            with open(archive, "wb") as file:
                file.write(read_exactly(size))
            with tarfile.open(archive) as opened:
                opened.extractall(wheels)
            run(*pip, "--no-index", "--find-links", wheels, *parameters["requirements"])
            shutil.rmtree(wheels)
            os.unlink(archive)

    def borrow(python):
        found = subprocess.run(
            [python, "-c", "import sysconfig;print(sysconfig.get_path('purelib'))"], check=True, stdout=-1
        )
        with open(os.path.join(found.stdout.decode().strip(), "roost-borrowed.pth"), "w") as file:
            file.write(parameters["borrow"] + "\n")

    root = os.path.abspath(os.path.expanduser(parameters["root"]))
    final = os.path.join(root, "env")
    try:
        if os.path.exists(os.path.join(final, "roost-env.json")):
            say("there")
            return
        os.makedirs(root, mode=0o700, exist_ok=True)
        part = tempfile.mkdtemp(prefix=".env-", dir=root)
        try:
            run(parameters["python"], "-m", "venv", part)
            python = os.path.join(part, "bin", "python")
            install(python, part)
            if parameters["borrow"]:
                borrow(python)
            with open(os.path.join(part, "roost-env.json"), "w") as file:
                json.dump({name: parameters[name] for name in ("python", "requirements", "borrow")}, file)
            os.sync()
            if os.path.isdir(final):
                os.rename(final, tempfile.mktemp(prefix=".env-old-", dir=root))
            os.rename(part, final)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        say("made")
    except OSError as error:
        say("error", message=str(error))
