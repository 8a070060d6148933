#!/usr/bin/env python3
"""A server that is not one: prints a given log at a given pace and ends in a given way.

Runs as a plain file on any Python >= 3.9 with the standard library alone, so that it can be put on any box:

    python fake_server.py --log real.log --pace 0.01 --end hang --port 30000

``--end``: ``exit:N`` · ``signal:N`` (kills itself) · ``hang`` (lives on in silence) · ``serve`` (needs ``--port``;
answers ``/health`` with 200 once the log is out, before that with 503). Options of a real server are ignored.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FLOOD_LINE = b"flood " + b"x" * 1017 + b"\n"


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--log", help="file whose lines are printed")
    parser.add_argument("--line", action="append", default=[], help="one more line to print, repeatable")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds between two lines")
    parser.add_argument("--end", default="exit:0", help="exit:N, signal:N, hang or serve")
    parser.add_argument("--port", type=int, default=0, help="port to listen on")
    parser.add_argument(
        "--grandchildren", type=int, default=0, help="processes that are forked twice and keep the log open"
    )
    parser.add_argument("--escape", action="store_true", help="grandchildren leave the session and the directory")
    parser.add_argument("--ignore-sigterm", action="store_true")
    parser.add_argument("--flood", type=int, default=0, help="bytes to print as fast as possible after the log")
    parser.add_argument("--title", default="", help="wipe the command line and the environment, as setproctitle does")
    parser.add_argument("--show-env", action="append", default=[], help="print NAME=VALUE of a variable, repeatable")
    options, _ = parser.parse_known_args(words)
    return options


def emit(line: bytes) -> None:
    os.write(2, line if line.endswith(b"\n") else line + b"\n")


def fork_grandchildren(count: int, *, escape: bool) -> None:
    """Processes whose parent is gone. They ignore SIGTERM and hold the log open, as orphaned workers do."""
    for _ in range(count):
        child = os.fork()
        if child == 0:
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                if escape:
                    os.setsid()
                    os.chdir("/")
                while True:
                    signal.pause()
            os._exit(0)
        os.waitpid(child, 0)


def overwrite_title(title: str) -> None:
    """What setproctitle does: the memory of argv and environ is written over, so /proc shows neither any more."""
    import ctypes

    fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[48])
    raw = title.encode()[: end - begin - 1]
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, raw, len(raw))


class Server:
    """Answers ``/health`` on a port of its own."""

    def __init__(self, port: int) -> None:
        self.ready = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200 if outer.ready else 503)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                emit(('INFO:     127.0.0.1 - "' + str(args[0]) + f'" {args[1]}').encode())

        class Listener(ThreadingHTTPServer):
            allow_reuse_address = True
            address_family = socket.AF_INET

        self._listener = Listener(("127.0.0.1", port), Handler)
        threading.Thread(target=self._listener.serve_forever, daemon=True).start()


def print_log(options: argparse.Namespace) -> None:
    lines = [line.encode() for line in options.line]
    if options.log:
        lines = Path(options.log).read_bytes().splitlines() + lines
    lines += [f"{name}={os.environ.get(name, '')}".encode() for name in options.show_env]
    for line in lines:
        emit(line)
        if options.pace:
            time.sleep(options.pace)
    for _ in range(options.flood // len(FLOOD_LINE)):
        os.write(2, FLOOD_LINE)


def end(how: str) -> int:
    kind, _, number = how.partition(":")
    if kind == "signal":
        os.kill(os.getpid(), int(number))
    if kind in ("hang", "serve"):
        while True:
            signal.pause()
    return int(number or 0)


def main(words: list[str]) -> int:
    options = parse(words)
    if options.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.title:
        overwrite_title(options.title)
    server = Server(options.port) if options.port else None
    fork_grandchildren(options.grandchildren, escape=options.escape)
    print_log(options)
    if server and options.end == "serve":
        server.ready = True
        emit(b"The server is fired up and ready to roll!")
    return end(options.end)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
