"""What a startup log means: lines -> events -> verdict; and the memory behind it. Pure: no file, socket or clock."""

from patchbisect.startup.classifier import Classifier, classify
from patchbisect.startup.events import Event, What
from patchbisect.startup.hang import SILENCE, Budgets, learnt, usual_silence
from patchbisect.startup.ledger import Ledger

__all__ = ["SILENCE", "Budgets", "Classifier", "Event", "Ledger", "What", "classify", "learnt", "usual_silence"]
