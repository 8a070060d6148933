"""patchbisect: a patch queue for SGLang, and bisection of what broke its startup."""

__version__ = "0.1.0"
