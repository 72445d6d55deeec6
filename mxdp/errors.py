"""The errors that a person is meant to read: one sentence each, and no traceback from the command line."""


class MxdpError(Exception):
    """Something outside mxdp is not as it must be; the message says what, and what to do."""


class BackendError(MxdpError):
    """MXNet, its libraries or its devices can't do what was asked."""


class DataError(MxdpError):
    """A data set is missing, damaged or not what it claims to be."""


class UsageError(MxdpError):
    """The command line asks for something that does not exist; exit status 2."""


class TraceError(MxdpError):
    """A trace can't be recorded or read, or is not one of MXNet's."""


class MemoryShortage(MxdpError):
    """A job needs more memory than there is; it was not started."""
