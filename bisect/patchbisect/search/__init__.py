"""Which point to launch next, and when to stop: pure, ask and tell."""

from patchbisect.search.culprit import CulpritSearch
from patchbisect.search.rates import Rates
from patchbisect.search.sets import CulpritSet
from patchbisect.search.values import Answer, Budget, Observation, Plan

__all__ = ["Answer", "Budget", "CulpritSearch", "CulpritSet", "Observation", "Plan", "Rates"]
