"""What has to be known of a box before it can be reached and used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from patchbisect.model import EMPTY


@dataclass(frozen=True, slots=True)
class BoxSettings:
    """One entry of ``boxes:`` in ``invoke.yaml``.

    Reached by at most one of ``host`` (SSH through Paramiko, a name of ssh's configuration or ``user@host:port``) and
    ``prefix`` (a command that runs what follows it on the box: ``docker exec -i sgl``, ``ssh rig``); neither is this
    machine. Sizes are GiB, times seconds.
    """

    host: str = ""
    prefix: tuple[str, ...] = ()
    directory: str = ""
    """Where the tool keeps its things on the box; ``~`` is the home there. Empty: ``box`` in the state directory for
    this machine, else ``~/.patchbisect-box``. A home on NFS is slow: name a local disk."""
    python: str = "python3"
    """The Python that runs the server."""
    agent_python: str = ""
    """The Python (3.9 or newer) that runs the agent; empty: ``python``, which also brings ``pynvml``."""
    checkout: str = ""
    """The user's own checkout of SGLang on the box: lends its git objects and its built files."""
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """Set for every server on this box, below the profile's own."""
    pythonpath: tuple[str, ...] = ()
    """Behind the code, in front of site-packages."""
    gpus: tuple[int, ...] = ()
    """The GPUs that belong to this box, by NVML index, and that its servers see; none named: the whole machine."""
    cpu_only: bool = False
    """Its servers use no GPU: none is looked at, and who computes on one is not in the way."""
    gpu_residents: tuple[str, ...] = ("nvidia-cuda-mps-server",)
    """Programs that live on the GPUs for good: they are no strangers, and what they hold belongs to the baseline."""
    secrets: tuple[str, ...] = ()
    """Names of variables and flags whose values are secret although they do not sound like it."""
    lease_directory: str = ""
    """Where the lease book is. Empty: ``/var/tmp/patchbisect-lease``, shared by all users of the machine, where it has
    GPUs; else in ``directory``."""
    lease_s: float = 120.0
    """How long a lease lives without being renewed."""
    build: tuple[str, ...] = ()
    """Makes the files that git does not track, run in a full checkout of the point, when their sources changed."""
    build_sources: tuple[str, ...] = ("sgl-kernel", "python/pyproject.toml", "rust")
    """What those files are made from, as paths in the repository."""
    pip_args: tuple[str, ...] = ()
    """More arguments for pip on the box, where it builds an environment of ours."""
    environments_gb: float = 60.0
    """What those environments may take on disk; the ones not used for longest are dropped."""
    min_free_gb: float = 1.0
    gpu_idle_gb: float = 1.5
    """A GPU without processes that uses less than this is idle; what it then uses becomes its baseline."""
    gpu_slack_gb: float = 0.5
    """How far above its baseline a GPU may be."""
    gpu_budget_s: float = 15.0
    """How long after the last process the memory may take to come back."""
    abandon_s: float = 3600.0
    """A server that no client follows for so long is ended, unless it is kept on purpose."""
    link_timeout_s: float = 15.0
    """A link that brings nothing for so long is lost."""
    link_patience_s: float = 900.0
    """How long a lost link is tried again before the box is given up."""
