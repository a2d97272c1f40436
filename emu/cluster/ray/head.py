"""Ray's processes of this machine, started by a program of their own, so that whoever needs them can go on.

`python head.py DIRECTORY CPUS OBJECT_STORE_BYTES [WITHOUT...]` starts Ray as `ray.init` does but connects to
nothing, prints a line of JSON (`address`, or `error`), and ends; the processes stay. It imports Ray alone.

WITHOUT names what is left out that a run has no use for, each a Python process that Ray waits for or that
takes half a second of CPU. `dashboard`: that and its agent (metrics, which have pages of their own here), the
autoscaler, and the log monitor (nothing is printed of workers). `environments`: the agent for runtime
environments, of which a run has none; whoever has a session may ask Ray for some. Ray's node waits until its
agents have said at which ports they listen; -1 is Ray's own word for none, which is written for them. There
is no public way; where a version of Ray has other names, Ray starts as it comes.
"""

import importlib
import json
import logging
import os
import sys
from typing import Any, Final

AGENTS: Final = {"dashboard": "--dashboard_agent_command=", "environments": "--runtime_env_agent_command="}
"""Options of the raylet, which ends where an agent does."""
IN_PLACE: Final = '/bin/sh -c "exec sleep 1000000000"'
"""Takes any arguments."""
PORTS: Final = {
    "dashboard": ("METRICS_AGENT", "METRICS_EXPORT", "DASHBOARD_AGENT_LISTEN"),
    "environments": ("RUNTIME_ENV_AGENT",),
}


def main(directory: str, cpus: str, store_bytes: str, *without: str) -> None:
    """Start Ray, and say where."""
    sys.path.pop(0)  # the directory of this file, whose names are no one else's
    import ray  # noqa: PLC0415  here alone
    from ray._private import node, services, utils, worker  # noqa: PLC0415

    # What is started outlives this program: whoever started it ends all (`emu.base.short_paths`).
    utils.detect_fate_sharing_support = lambda: False
    own: Any = node.Node
    own.start_reaper_process = _nothing
    worker.connect = _tell
    if without:
        _leave_out(without, node, services)
    try:
        ray.init(
            address="local",
            num_cpus=int(cpus),
            num_gpus=0,
            include_dashboard=False,
            object_store_memory=int(store_bytes),
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=directory,
        )
    except Exception as error:  # noqa: BLE001  Ray raises that where a node is late
        _say("error", (str(error).strip() or type(error).__name__).splitlines()[0])


def _tell(node: Any, *_: Any, **__: Any) -> None:
    """In place of `ray.init` connecting to what it has started."""
    _say("address", str(node.gcs_address))


def _say(what: str, value: str) -> None:
    """Tell who started this program, and end at once: or Ray would end what it has started."""
    print(json.dumps({what: value}), flush=True)  # noqa: T201
    os._exit(0)


def _leave_out(without: tuple[str, ...], node: Any, services: Any) -> None:
    """Have Ray start without them; as it comes where this version has other names."""
    compiled: Any = importlib.import_module("ray._raylet")
    try:
        names = [getattr(compiled, f"{one}_PORT_NAME") for what in without for one in PORTS[what]]
        agents = tuple(AGENTS[what] for what in without)
        persist, start = compiled.persist_port, services.start_ray_process
        start_raylet = node.Node.start_raylet
        _ = node.Node.start_monitor, node.Node.start_log_monitor, node.Node.start_api_server
    except AttributeError:
        return

    def raylet(self: Any, *arguments: Any, **named: Any) -> Any:
        for name in names:
            persist(self._session_dir, self._node_id, name, -1)
        return start_raylet(self, *arguments, **named)

    def quiet_process(command: list[str], *arguments: Any, **named: Any) -> Any:
        for place, word in enumerate(command):
            if word.startswith(agents):
                command[place] = word.partition("=")[0] + "=" + IN_PLACE
        return start(command, *arguments, **named)

    services.start_ray_process = quiet_process
    node.Node.start_raylet = raylet
    node.Node.start_monitor = node.Node.start_log_monitor = node.Node.start_api_server = _nothing


def _nothing(*_: Any, **__: Any) -> None:
    """In place of what is not started."""


if __name__ == "__main__":
    main(*sys.argv[1:])
