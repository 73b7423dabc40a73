"""``musetrace view``: shows runs in the browser."""

from __future__ import annotations

import argparse
import errno
import ipaddress
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from musetrace.cli.command import EXIT_COMPLETE, Command, add_json_option
from musetrace.cli.output import print_json
from musetrace.errors import MusetraceError, UsageError

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8050
_HIGHEST_PORT = 65535
_EXTRA = ("dash", "dash_ag_grid", "plotly", "flask", "flask_compress", "werkzeug")


class ViewCommand(Command):
    """A page on this machine, for this machine."""

    name = "view"
    help = "show a run in the browser, or several to compare"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the runs and where to serve them."""
        parser.add_argument("runs", nargs="+", metavar="run", help="the folder of a run")
        parser.add_argument(
            "--host",
            default=DEFAULT_HOST,
            help="address to serve on: one of this machine only, unless --allow-remote",
        )
        parser.add_argument(
            "--port", type=int, default=DEFAULT_PORT, metavar="N", help=f"default {DEFAULT_PORT}"
        )
        parser.add_argument(
            "--allow-remote",
            action="store_true",
            help="serve to other machines too: whoever has the address with its token reads the runs",
        )
        parser.add_argument("--no-browser", action="store_true", help="print the address, open no browser")
        add_json_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Serve until Ctrl-C."""
        if not args.allow_remote:
            check_host(args.host)
        check_port(args.host, args.port)
        try:
            from musetrace.dashboard import serve
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in _EXTRA:
                raise
            raise MusetraceError(
                f"view needs the package {error.name}: pip install 'musetrace[dashboard]'"
            ) from error
        if args.allow_remote and not is_local(args.host):
            print(
                f"musetrace: warning: {args.host} is open to other machines, without encryption",
                file=sys.stderr,
            )
        serve(
            [Path(run) for run in args.runs],
            args.host,
            args.port,
            open_browser=not args.no_browser,
            allow_remote=args.allow_remote,
            announce=_print_json(args.runs) if args.json else None,
        )
        return EXIT_COMPLETE


def _print_json(runs: list[str]) -> Callable[[str], None]:
    def announce(url: str) -> None:
        print_json({"runs": runs, "url": url})
        sys.stdout.flush()

    return announce


def is_local(host: str) -> bool:
    """Whether an address is one of this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_host(host: str) -> None:
    """Raises UsageError for an address that other machines can reach."""
    if not is_local(host):
        raise UsageError(
            f"--host {host} is not an address of this machine alone: leave it at {DEFAULT_HOST} and use "
            "ssh -L to look from elsewhere, or add --allow-remote"
        )


def check_port(host: str, port: int) -> None:
    """Raises UsageError for a port that there is not, MusetraceError for one that cannot be had."""
    if not 1 <= port <= _HIGHEST_PORT:
        raise UsageError(f"--port {port} is not a port: give one from 1 to {_HIGHEST_PORT}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # As the server will: a port whose last connection just ended may be taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise MusetraceError(f"port {port} is in use: choose another with --port N") from error
        reason = error.strerror or str(error)
        raise MusetraceError(
            f"cannot serve on {host} port {port}: {reason}; choose another with --port N"
        ) from error
