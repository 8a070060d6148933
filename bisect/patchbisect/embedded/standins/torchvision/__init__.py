"""Stands in for torchvision, which SGLang 0.5.9 imports for its image models (srt/multimodal/internvl_utils.py).

The real one does not fit: 0.29.1 fails at import beside a CPU build of torch ("operator torchvision::nms does not
exist"), and 0.15.2, which only warns, has no wheel for Python 3.12. As no distribution of that name is installed,
transformers takes torchvision for absent, which is right.
"""

# mypy: disable-error-code="import-not-found, misc"
# patchbisect_inert is beside this package, on the server's PYTHONPATH.

from patchbisect_inert import make_inert

make_inert(__name__)
