"""What joins standard input and output to a loopback port of the node that it runs on; its source is sent, as the bootstrap's is.

Stdlib only, read by any Python 3.8 or newer. Where nothing listens it ends with 1 and says so on standard error.
"""


def main(parameters):
    """Relay until either side ends; `parameters` has `port`."""
    import os
    import socket
    import sys
    import threading

    try:
        stream = socket.create_connection(("127.0.0.1", parameters["port"]), timeout=30)
    except OSError as error:
        sys.exit("nothing answers at port %d of the node: %s" % (parameters["port"], error))
    stream.settimeout(None)

    def send():
        while True:
            block = os.read(0, 1 << 16)
            if not block:
                break
            stream.sendall(block)
        stream.shutdown(socket.SHUT_WR)

    threading.Thread(target=send, daemon=True).start()
    while True:
        block = stream.recv(1 << 16)
        if not block:
            break
        while block:
            block = block[os.write(1, block) :]
