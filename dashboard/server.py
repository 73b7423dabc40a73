"""Serves a run on this machine until it is told to stop."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import sys
import threading
import webbrowser
from types import TracebackType

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from musetrace.dashboard.app import DEFAULT_HOST, DEFAULT_PORT, create_app
from musetrace.dashboard.security import hosts_of
from musetrace.errors import MusetraceError, UsageError
from musetrace.store import open_run

_IDLE_SECONDS = 60


class _Handler(WSGIRequestHandler):
    """Quiet, and done with a client that does not finish its request."""

    timeout = _IDLE_SECONDS

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing: a page is many requests."""

    def version_string(self) -> str:
        """Says what it is and not which versions it is made of."""
        return "musetrace"


class DashboardServer:
    """A run, its application, and a socket that is bound and listening. ``url`` is where to look."""

    def __init__(
        self, run_path: str | os.PathLike[str], host: str = DEFAULT_HOST, port: int = DEFAULT_PORT
    ) -> None:
        """Open the run and bind; port 0 takes any free one. The environment has no say in either.

        Raises:
            UsageError: ``host`` is not an address of this machine alone.
            MusetraceError: the run cannot be opened, or the port cannot be had.
        """
        _check_loopback(host)
        run = open_run(run_path)
        listening = _listen(host, port)
        with listening:
            self.port = int(listening.getsockname()[1])
            self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"
            self.app = create_app(run, hosts_of(host, self.port))
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
    run_path: str | os.PathLike[str],
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    open_browser: bool = True,
) -> None:
    """Show a run in the browser until Ctrl-C. Prints the address to stderr; port 0 takes any free one.

    Raises:
        UsageError: ``host`` is not an address of this machine alone.
        MusetraceError: the run cannot be opened, or the port cannot be had.
    """
    server = DashboardServer(run_path, host, port)
    print(f"{run_path} is shown at {server.url} (Ctrl-C ends)", file=sys.stderr, flush=True)
    if open_browser:
        # The socket listens already: a browser that is quicker than the server waits in its queue.
        threading.Thread(target=_open_browser, args=(server.url,), daemon=True).start()
    server.serve_forever()


def _open_browser(url: str) -> None:
    with contextlib.suppress(webbrowser.Error, OSError):
        webbrowser.open(url, new=2)


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
