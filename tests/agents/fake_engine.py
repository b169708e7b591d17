#!/usr/bin/env python3
"""What a launched SGLang looks like from outside: log lines, an HTTP address, a child. `FAKE_ENGINE` says how it behaves."""

import http.server
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

BEHAVIOUR = os.environ.get("FAKE_ENGINE", "").split()
PORT = int(sys.argv[sys.argv.index("--port") + 1])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer()
        if self.path == "/server_info" and "dies-later" in BEHAVIOUR:
            print("torch.OutOfMemoryError: CUDA out of memory.", flush=True)
            os._exit(7)

    def do_POST(self):
        Path(os.environ["FAKE_ENGINE_NOTES"]).write_text(self.path)
        self.answer()

    def answer(self):
        body = b'{"version": "0.0-fake"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    print("Load weight begin. avail mem=1.00 GB", flush=True)
    if "dies" in BEHAVIOUR:
        print("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", flush=True)
        sys.exit(1)
    # A scheduler that nobody asks to go.
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    if "never-ready" in BEHAVIOUR:
        threading.Event().wait()
    if "deaf" in BEHAVIOUR:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "announces" in BEHAVIOUR:
        Path(os.environ["ROOST_CAPTURE_SPOOL"], "ready-rank0.json").write_text("{}")
    print("max_total_num_tokens=1024, chunked_prefill_size=64", flush=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
    print("The server is fired up and ready to roll!", flush=True)
    server.serve_forever()


main()
