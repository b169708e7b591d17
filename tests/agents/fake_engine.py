#!/usr/bin/env python3
"""What a launched SGLang or vLLM looks like from outside: log lines, an HTTP address, a child. `FAKE_ENGINE` says how it behaves."""

import http.server
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

VLLM = "vllm.entrypoints.openai.api_server" in sys.argv
BEHAVIOUR = os.environ.get("FAKE_ENGINE", "").split()
HELP = """usage: sglang serve [-h] --model-path MODEL_PATH

options:
  -h, --help            show this help message and exit
  --model-path MODEL_PATH, --model MODEL_PATH
  --host HOST           Where to listen.
  --port PORT
  --device DEVICE
  --dtype {auto,half,float16,bfloat16,float,float32}
  --max-total-tokens MAX_TOTAL_TOKENS
  --tp-size TP_SIZE
  --speculative-algorithm SPECULATIVE_ALGORITHM
  --return-aux-hidden-state-layer-ids ID [ID ...]
  --disable-access-log-for-endpoints PATHS
  --enforce-eager, --no-enforce-eager
"""
SWITCHES = (
    "enable-metrics",
    "disable-overlap-schedule",
    "sleep-on-idle",
    "enable-return-hidden-states",
    "enable-return-aux-hidden-states",
    "disable-radix-cache",
    "disable-prefill-cuda-graph",
    "disable-decode-cuda-graph",
)
if ("--help=all" if VLLM else "--help") in sys.argv:
    if "cannot-help" in BEHAVIOUR:
        sys.exit("ModuleNotFoundError: No module named 'sglang'")
    sys.stdout.write(HELP + "".join(f"  --{name}\n" for name in SWITCHES))
    sys.exit()
PORT = int(sys.argv[sys.argv.index("--port") + 1])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer()
        if self.path == "/server_info" and "dies-later" in BEHAVIOUR:
            print("torch.OutOfMemoryError: CUDA out of memory.", flush=True)
            os._exit(7)
        if self.path == "/server_info" and "recovers-and-ends" in BEHAVIOUR:
            print("Goodbye.", flush=True)
            os._exit(7)

    def do_POST(self):
        if self.path == "/v1/completions" and "dies-of-a-token" in BEHAVIOUR:
            print("RuntimeError: Unsupported CPU attention configuration: head_dim=16", flush=True)
            os._exit(7)
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
    print("Starting to load model /m..." if VLLM else "Load weight begin. avail mem=1.00 GB", flush=True)
    if "dies" in BEHAVIOUR:
        print("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", flush=True)
        sys.exit(1)
    launched = Path(os.environ["FAKE_ENGINE_NOTES"] + ".launched")
    if "dies-the-second-time" in BEHAVIOUR and launched.exists():
        sys.exit("SafetensorError: Error while deserializing header")
    launched.touch()
    # A scheduler that nobody asks to go.
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    if "recovers-and-ends" in BEHAVIOUR:
        print("torch.OutOfMemoryError: again with less", flush=True)
    if "finds-its-port-taken" in BEHAVIOUR:
        print("ERROR: [Errno 98] error while attempting to bind on address: address already in use", flush=True)
    if {"never-ready", "finds-its-port-taken"} & set(BEHAVIOUR):
        threading.Event().wait()
    if "deaf" in BEHAVIOUR:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "late-rank" in BEHAVIOUR:
        late = Path(os.environ["ROOST_CAPTURE_SPOOL"], "ready-rank1.json")
        threading.Timer(1.5, lambda: late.write_text("{}")).start()
    if "announces" in BEHAVIOUR:
        Path(os.environ["ROOST_CAPTURE_SPOOL"], "ready-rank0.json").write_text("{}")
    warm = "init engine (profile, create kv cache, warmup model) took 3.44 s" if VLLM else "max_total_num_tokens=1024"
    print(warm, flush=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
    print(
        "INFO:     Application startup complete." if VLLM else "The server is fired up and ready to roll!", flush=True
    )
    server.serve_forever()


main()
