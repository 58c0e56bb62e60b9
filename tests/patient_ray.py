"""Import this before Ray starts, to give it more time; a busy machine may need minutes. Ray gives up on a node that has not
started within 30 s: here its clock counts a twentieth of the seconds. A node gives up on its agents after 15 s (ray#65983):
they get their ports before they start, so that no node waits to read them. And it gives up on its first worker after 60 s,
for which the driver then waits for ever: here it has twenty minutes. Its workers let all other programs go first, so that a
busy machine starves them: here they do not."""
import functools
import os
import re
import socket
import time

from ray._private import node, services
from ray._private.parameter import RayParams
from ray._private.ray_constants import PROCESS_TYPE_RAYLET

PORTS = ("metrics_agent_port", "metrics_export_port", "runtime_env_agent_port")


class SlowClock:
    "The module `time`, with a slow clock."
    def __getattr__(self, name): return getattr(time, name)
    def monotonic(self): return time.monotonic() / 20


def free_ports(count):
    "Return so many free ports."
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets: each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets: each.close()


def with_ports(start):
    "`RayParams.__init__` with a port for each agent."
    @functools.wraps(start)
    def started(self, **options):
        start(self, **{**options, **{name: port for name, port in zip(PORTS, free_ports(len(PORTS))) if not options.get(name)}})
    return started


def with_dashboard_port(start):
    "`start_ray_process` that also gives a node the port of its dashboard's agent; Ray gives it to the agent alone."
    @functools.wraps(start)
    def started(command, kind, *more, **options):
        if kind == PROCESS_TYPE_RAYLET:
            port, = free_ports(1)
            command = [re.sub(r"--listen-port=\w+", f"--listen-port={port}", part) for part in command]
            command.append(f"--dashboard_agent_listen_port={port}")
        return start(command, kind, *more, **options)
    return started


os.environ |= dict(RAY_worker_register_timeout_seconds="1200", RAY_agent_register_timeout_ms="1200000",   # Nodes inherit them
                   RAY_worker_niceness="0")
node.time = SlowClock()
RayParams.__init__ = with_ports(RayParams.__init__)
services.start_ray_process = with_dashboard_port(services.start_ray_process)
