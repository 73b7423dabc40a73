"""The exceptions musetrace raises on purpose.

::

    MusetraceError
      RecordError          the recorder could not start or could not write
      DeviceError          a device refused a launch or a wait ran out of time
      TraceFileError       a file or folder cannot be read as a run
        NotARunError       it is not a musetrace run at all
        UnsupportedVersionError   it was made by a newer format
        LimitExceededError a size in it is beyond the limits table
      AnalysisError        a question that this run cannot answer
      OverheadError        a measurement of the stamps' cost cannot be made
      OutputError          the output of a step cannot be compared
      InstallError         a part of the package is not installed
      UsageError           a command or an option that makes no sense (exit code 2)

Each message says what happened, to which thing, and what to do.
"""

from __future__ import annotations


class MusetraceError(Exception):
    """Base of every error that musetrace raises on purpose. One line, no traceback needed."""

    exit_code = 1


class RecordError(MusetraceError):
    """The recorder could not start, or could not write."""


class DeviceError(MusetraceError):
    """A device refused a launch, or a wait in a kernel ran out of time."""


class TraceFileError(MusetraceError):
    """A file or folder cannot be read as a run."""


class NotARunError(TraceFileError):
    """The path is not a musetrace run."""


class UnsupportedVersionError(TraceFileError):
    """The run was written by a newer major version of the format."""


class LimitExceededError(TraceFileError):
    """A size in the file is beyond the limits table."""


class InstallError(MusetraceError):
    """A part of the package is not installed."""


class AnalysisError(MusetraceError):
    """A question that this run cannot answer."""


class OverheadError(MusetraceError):
    """A measurement of what stamps cost cannot be made."""


class OutputError(MusetraceError):
    """The output of a step is of a type that cannot be compared bit for bit."""


class UsageError(MusetraceError):
    """A command or an option that makes no sense."""

    exit_code = 2


def one_line(error: BaseException, most_characters: int = 160) -> str:
    """What another library's error says, for a message of ours: on one line, and no longer than that."""
    return " ".join(str(error).split())[:most_characters]
