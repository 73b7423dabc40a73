"""Serves runs on this machine until it is told to stop."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Sequence
from types import TracebackType

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from musetrace.dashboard.app import DEFAULT_HOST, DEFAULT_PORT, create_app
from musetrace.dashboard.open_runs import OpenRuns
from musetrace.dashboard.security import TOKEN_FIELD, Access, hosts_of
from musetrace.errors import MusetraceError, UsageError
from musetrace.store import open_run

_IDLE_SECONDS = 60
_TOKEN_BYTES = 24


class _Handler(WSGIRequestHandler):
    """Quiet, and done with a client that does not finish its request."""

    timeout = _IDLE_SECONDS

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing: a page is many requests."""

    def version_string(self) -> str:
        """Says what it is and not which versions it is made of."""
        return "musetrace"


class DashboardServer:
    """Runs, their application, and a socket that is bound and listening.

    ``url`` is the page's address, ``entry_url`` the one to open first: it has the token.
    """

    def __init__(
        self,
        run_paths: Sequence[str | os.PathLike[str]],
        host: str = DEFAULT_HOST,
        port: int = DEFAULT_PORT,
        allow_remote: bool = False,
    ) -> None:
        """Open the runs and bind; port 0 takes any free one. The environment has no say in either.

        Raises:
            UsageError: ``host`` is not an address of this machine alone, and remote ones are not allowed; or
                no run is named.
            MusetraceError: a run cannot be opened, or the port cannot be had.
        """
        if not allow_remote:
            _check_loopback(host)
        if not run_paths:
            raise UsageError("no run is named: give the folder of one")
        runs = OpenRuns([open_run(path) for path in run_paths])
        listening = _listen(host, port)
        with listening:
            self.port = int(listening.getsockname()[1])
            self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"
            token = secrets.token_urlsafe(_TOKEN_BYTES)
            self.entry_url = f"{self.url}?{TOKEN_FIELD}={token}"
            names = _names_of_this_machine() if allow_remote else ()
            self.app = create_app(runs, Access(hosts_of(host, self.port, names), token))
            # Handing over the socket keeps Werkzeug from ending the process when a port is taken.
            self._server: BaseWSGIServer = make_server(
                host,
                self.port,
                self.app.server,
                threaded=True,
                request_handler=_Handler,
                fd=listening.fileno(),
            )

    def serve_forever(self) -> None:
        """Answer requests until :meth:`close` is called from another thread, or Ctrl-C."""
        self._server.serve_forever()

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> DashboardServer:
        """Serve in a thread until the block is left."""
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop serving."""
        self.close()
        self._thread.join()


def serve(
    run_paths: Sequence[str | os.PathLike[str]],
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    *,
    open_browser: bool = True,
    allow_remote: bool = False,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Show runs in the browser until Ctrl-C; port 0 takes any free one.

    Args:
        run_paths: folders of runs, at least one.
        host: an address of this machine alone, unless ``allow_remote``.
        port: to serve on.
        open_browser: whether to open the page.
        allow_remote: serve to other machines too, to whoever has the token.
        announce: is told the address with the token; unless given it is printed to stderr.

    Raises:
        UsageError: ``host`` is not an address of this machine alone.
        MusetraceError: a run cannot be opened, or the port cannot be had.
    """
    server = DashboardServer(run_paths, host, port, allow_remote)
    (announce or _announcer(run_paths))(server.entry_url)
    if open_browser:
        # The socket listens already: a browser that is quicker than the server waits in its queue.
        threading.Thread(target=_open_browser, args=(server.entry_url,), daemon=True).start()
    server.serve_forever()


def _announcer(run_paths: Sequence[str | os.PathLike[str]]) -> Callable[[str], None]:
    names = ", ".join(str(path) for path in run_paths)
    verb = "is" if len(run_paths) == 1 else "are"
    return lambda url: print(f"{names} {verb} shown at {url} (Ctrl-C ends)", file=sys.stderr, flush=True)


def _open_browser(url: str) -> None:
    with contextlib.suppress(webbrowser.Error, OSError):
        webbrowser.open(url, new=2)


def _names_of_this_machine() -> list[str]:
    """What other machines may call this one."""
    names = {socket.gethostname(), socket.getfqdn()}
    with contextlib.suppress(OSError):
        for *_, address in socket.getaddrinfo(socket.gethostname(), None):
            names.add(str(address[0]))
    return sorted(f"[{name}]" if ":" in name else name for name in names)


def _check_loopback(host: str) -> None:
    try:
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if not is_local:
        raise UsageError(f"host {host!r} is not an address of this machine alone: use {DEFAULT_HOST}")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        reason = error.strerror or str(error)
        raise MusetraceError(f"cannot serve on {host} port {port}: {reason}; choose another port") from error
    return listening
