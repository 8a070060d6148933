"""Stands in for torchao, which SGLang 0.5.8 imports for its quantised models; 0.5.9 does not need it."""

# mypy: disable-error-code="import-not-found"
# patchbisect_inert is beside this package, on the server's PYTHONPATH.

from patchbisect_inert import make_inert

make_inert(__name__)
