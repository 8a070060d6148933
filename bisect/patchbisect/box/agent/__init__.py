"""What runs on the box: Python >= 3.9, the standard library alone (and ``pynvml`` where it is there).

The client copies it there once, starts it through a link and talks to it over stdin and stdout: one JSON line
per request, its ``payload`` bytes after it; one or more JSON lines as the answer, the bytes of a log chunk
after theirs. Nothing that a user chose reaches a command line of a shell, and secrets are in requests only.

A second copy, the *supervisor*, is started once per launch and outlives the link. It is the parent and child
subreaper of the server, keeps the list of its processes, writes samples and the exit cause. A third one, ``warm.py``,
runs in the server's own Python, where launches are forked from one that has imported what they import. Layout on the
box:

    DIR/agent-HASH/                   this package, by content
    DIR/code.git                      bare repository that bundles are unpacked into
    DIR/trees/TREE/python/sglang/     code by content; never modified once it is there
    DIR/applied/                      what ``apply-queue`` put there for the user to look at
    DIR/warm/KEY-FENCE/               a warm process: its socket, state and log; KEY.json is what it has learned
    DIR/runs/LAUNCH/                  working directory and TMPDIR of one launch: log, known.json, signals.json, …
"""

import os

HOME, PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))), __name__
"""Where this very package is imported from, and its name there: whatever is started anew runs the same code."""
