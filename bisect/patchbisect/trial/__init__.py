"""One point on one box → verdict. The only place where a box and the meaning of a log meet."""

from patchbisect.box.failures import NotWarm
from patchbisect.trial.desk import Desk, pin_of
from patchbisect.trial.preparing import Prepared, prepare
from patchbisect.trial.recording import Trial, point_entry
from patchbisect.trial.rig import Rig, open_rig, reach, swept
from patchbisect.trial.running import SETTLE_S, rejoin_trial, run_trial
from patchbisect.trial.usual import usual
from patchbisect.trial.watching import SampleWatcher, Silent, Steps, Stoppable, Watcher
from patchbisect.trial.wheels import Wants, Wheels

__all__ = [
    "SETTLE_S",
    "Desk",
    "NotWarm",
    "Prepared",
    "Rig",
    "SampleWatcher",
    "Silent",
    "Steps",
    "Stoppable",
    "Trial",
    "Wants",
    "Watcher",
    "Wheels",
    "open_rig",
    "pin_of",
    "point_entry",
    "prepare",
    "reach",
    "rejoin_trial",
    "run_trial",
    "swept",
    "usual",
]
