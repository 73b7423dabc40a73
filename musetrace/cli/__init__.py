"""The command line: ``musetrace VERB ...``. A file or a folder per verb, imported when the verb is used."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from musetrace import __version__
from musetrace.cli.command import EXIT_COMPLETE, EXIT_REFUSED
from musetrace.cli.text import shown
from musetrace.cli.verbs import VERBS, load_verb, resembling
from musetrace.errors import MusetraceError, UsageError

EXIT_INTERRUPTED = 130  # as a shell tells of SIGINT
EXIT_PIPE_CLOSED = 141  # and of SIGPIPE
DEBUG_VARIABLE = "MUSETRACE_DEBUG"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; no exception comes out.

    Whatever goes wrong is one line on stderr. ``MUSETRACE_DEBUG=1`` adds the traceback of an internal error.
    """
    try:
        code = _dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _drop_stdout()
        return EXIT_PIPE_CLOSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except MusetraceError as error:
        return _complain(str(error), error.exit_code)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else EXIT_COMPLETE
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE) == "1":
            traceback.print_exc()
        return _complain(
            f"{type(error).__name__}: {error} ({DEBUG_VARIABLE}=1 shows the traceback)", EXIT_REFUSED
        )


def _dispatch(argv: list[str]) -> int:
    at = next((index for index, word in enumerate(argv) if not word.startswith("-")), len(argv))
    _top_parser().parse_args(argv[:at])
    if at == len(argv):
        _top_parser().print_help()
        return EXIT_COMPLETE
    name = argv[at]
    if name not in VERBS:
        close = resembling(name)
        hint = f"did you mean {close}?" if close else f"there are {', '.join(VERBS)}"
        raise UsageError(f"no verb {name!r}: {hint}")
    command = load_verb(name)
    parser = _Parser(prog=f"musetrace {name}", description=command.help, allow_abbrev=False)
    command.add_arguments(parser)
    return command.run(parser.parse_args(argv[at + 1 :]))


class _Parser(argparse.ArgumentParser):
    """Argument errors are usage errors like any other: one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} ({self.prog} --help tells more)")


def _top_parser() -> _Parser:
    verbs = "\n".join(f"  {name:<8} {verb.help}" for name, verb in VERBS.items())
    parser = _Parser(
        prog="musetrace",
        usage="musetrace VERB ...",
        description="Shows what happens inside a GPU megakernel.",
        epilog=f"verbs:\n{verbs}\n\nmusetrace VERB --help tells more about a verb",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"musetrace {__version__}")
    return parser


def _complain(message: str, code: int) -> int:
    try:
        print(f"musetrace: {shown(message)}", file=sys.stderr)
        sys.stdout.flush()
    except OSError:
        _drop_stdout()
    return code


def _drop_stdout() -> None:
    """Let the interpreter flush what nobody reads any more into the void when it ends."""
    # Where stdout is no real file, as in a test, nothing is flushed at the end either.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
