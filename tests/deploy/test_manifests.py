"""What stands in `deploy/` has the shape that Ray and KubeRay ask for, and asks emu for nothing it lacks."""

import importlib.metadata
import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import pytest
import ray
import yaml
from click.testing import CliRunner
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ray.scripts.scripts import start

from emu.cli.commands.run import command
from emu.cluster.ray.session import PATIENCE
from tests.scenarios_run.small import ROOT

DEPLOY = ROOT / "deploy"
IMAGE = (DEPLOY / "Dockerfile").read_text("utf-8")
MANIFESTS = sorted(path.name for path in (DEPLOY / "kuberay").glob("*.yaml"))


def manifest(name: str) -> Any:
    return yaml.safe_load((DEPLOY / "kuberay" / name).read_text("utf-8"))


def cluster_spec(name: str) -> Any:
    spec = manifest(name)["spec"]
    return spec.get("rayClusterSpec", spec)


def schema(file: str) -> Any:
    found = json.loads((DEPLOY / "kuberay" / file).read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(found)
    return found


@pytest.mark.parametrize("name", MANIFESTS)
@pytest.mark.parametrize("file", ["crd.json", "schema.json"])
def test_manifest_has_the_fields_of_its_kind(name: str, file: str) -> None:
    """By KubeRay's own definitions, and by what the API server asks of a pod besides."""
    jsonschema.validate(manifest(name), schema(file))


MISTAKES: dict[str, tuple[str, object]] = {
    "a misspelt field": ("spec/workerGroupSpecs/0/maxReplica", 3),
    "a number for a text": ("spec/headGroupSpec/rayStartParams/num-cpus", 4),
    "a text for a number": ("spec/workerGroupSpecs/0/replicas", "3"),
    "fewer than none": ("spec/workerGroupSpecs/0/minReplicas", -1),
    "no quantity": ("spec/headGroupSpec/template/spec/containers/0/resources/limits/memory", "8 Gi"),
    "cores as a number": ("spec/headGroupSpec/template/spec/containers/0/resources/limits/cpu", 4),
    "no port": ("spec/headGroupSpec/template/spec/containers/0/ports/0/containerPort", 65536),
    "a port's name that is too long": (
        "spec/headGroupSpec/template/spec/containers/0/ports/0/name",
        "p" * 16,
    ),
    "another way of proving oneself": ("spec/authOptions/mode", "password"),
    "a group's name that is no label": ("spec/workerGroupSpecs/0/groupName", "Workers_1"),
    "another version of the interface": ("apiVersion", "ray.io/v1alpha1"),
    "another kind": ("kind", "RayService"),
}


NOT_OF_THE_DEFINITION = {
    "fewer than none",
    "cores as a number",
    "no port",
    "a port's name that is too long",
    "a group's name that is no label",
}
"""What the operator or the API server refuses later, or only this house."""


@pytest.mark.parametrize(("mistake", "path", "value"), [(name, *how) for name, how in MISTAKES.items()])
def test_a_mistake_in_a_manifest_is_noticed(mistake: str, path: str, value: object) -> None:
    wrong = manifest("raycluster.yaml")
    *above, last = [int(word) if word.isdigit() else word for word in path.split("/")]
    place = wrong
    for word in above:
        place = place[word]
    place[last] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema("schema.json"))
    if mistake not in NOT_OF_THE_DEFINITION:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema("crd.json"))


@pytest.mark.parametrize("name", MANIFESTS)
def test_groups_can_be_had_as_they_are_asked_for(name: str) -> None:
    spec = cluster_spec(name)
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    options = {option for parameter in start.params for option in parameter.opts}
    for group in groups:
        (container,) = group["template"]["spec"]["containers"]
        assert {f"--{key}" for key in group["rayStartParams"]} <= options
        assert container["resources"]["limits"] == container["resources"]["requests"]
        assert container["securityContext"]["runAsUser"] == 1000, "as in the image"
        ports = container.get("ports", [])
        assert len({port["containerPort"] for port in ports}) == len({port["name"] for port in ports})
    for group in spec["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    assert len({group["groupName"] for group in spec["workerGroupSpecs"]}) == len(spec["workerGroupSpecs"])


@pytest.mark.parametrize("name", MANIFESTS)
def test_probes_of_kuberay_find_somebody_to_answer(name: str) -> None:
    """It asks the agent of every pod at 52365 and the head's dashboard at 8265, up to Ray 2.52 with wget."""
    head = cluster_spec(name)["headGroupSpec"]
    assert head["rayStartParams"]["include-dashboard"] == "true"
    ports = {
        port["name"]: port["containerPort"] for port in head["template"]["spec"]["containers"][0]["ports"]
    }
    assert ports["dashboard"] == 8265
    assert "'ray[default]'" in IMAGE
    assert re.search(r"^RUN apt-get .* install .*\bwget\b", IMAGE.partition("\nFROM ")[2], re.MULTILINE)


def test_image_pins_what_the_dashboard_needs() -> None:
    lists = [(ROOT / "constraints.txt"), DEPLOY / "dashboard.txt"]
    pinned = [line.split("==") for path in lists for line in path.read_text("utf-8").split()]
    assert all(len(pin) == 2 for pin in pinned)
    names = [canonicalize_name(name) for name, _ in pinned]
    assert len(names) == len(set(names))
    needed = map(Requirement, importlib.metadata.requires("ray") or [])
    wanted = {
        canonicalize_name(one.name)
        for one in needed
        if one.marker is None or one.marker.evaluate({"extra": "default", "python_version": "3.11"})
    }
    assert wanted <= set(names)


@pytest.mark.parametrize("name", MANIFESTS)
def test_pods_run_the_image_that_is_built(name: str) -> None:
    (built,) = re.findall(r"^# Build .*docker build -f deploy/Dockerfile -t (\S+) \.$", IMAGE, re.MULTILINE)
    spec = cluster_spec(name)
    for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]:
        assert [one["image"] for one in group["template"]["spec"]["containers"]] == [built]
    assert f"-t {built} ." in (ROOT / "docs" / "cluster.md").read_text("utf-8")


@pytest.mark.parametrize("name", MANIFESTS)
def test_cluster_asks_for_a_token_and_is_of_the_pinned_ray(name: str) -> None:
    pinned = re.search(r"^ray==(\S+)", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    assert pinned is not None
    assert cluster_spec(name)["authOptions"] == {"mode": "token"}
    assert cluster_spec(name)["rayVersion"] == pinned.group(1)


def test_job_runs_a_command_that_emu_has_on_a_scenario_that_exists() -> None:
    words = shlex.split(manifest("rayjob.yaml")["spec"]["entrypoint"])
    assert words[:2] == ["emu", "run"]
    assert (ROOT / words[2].removeprefix("/home/ray/")).exists()
    known = CliRunner().invoke(command, ["--help"]).output
    assert [word for word in words[3:] if word.startswith("--") and word not in known] == []


def test_ray_up_takes_the_cluster_file() -> None:
    schema = json.loads(
        Path(ray.__file__).with_name("autoscaler").joinpath("ray-schema.json").read_text("utf-8")
    )
    cluster = yaml.safe_load((DEPLOY / "ray" / "cluster.yaml").read_text("utf-8"))
    jsonschema.validate(cluster, schema)
    started = [*cluster["head_start_ray_commands"], *cluster["worker_start_ray_commands"]]
    assert all("RAY_AUTH_MODE=token" in line for line in started if "ray start" in line)


def test_clusters_that_are_started_by_hand_have_the_patience_of_those_that_emu_starts() -> None:
    cluster = yaml.safe_load((DEPLOY / "ray" / "cluster.yaml").read_text("utf-8"))
    started = [*cluster["head_start_ray_commands"], *cluster["worker_start_ray_commands"]]
    variables = re.findall(r"^ENV (.*?)(?<!\\)$", IMAGE, re.MULTILINE | re.DOTALL)
    page = (ROOT / "docs" / "cluster.md").read_text("utf-8")
    set_by_hand = re.findall(r"^    export (.*)$", page, re.MULTILINE)
    places = [*(line for line in started if "ray start" in line), " ".join(variables), " ".join(set_by_hand)]
    given = [dict(re.findall(r"(RAY_\w+)=(\S+)", place)) for place in places]
    assert [{name: one.get(name) for name in PATIENCE} for one in given] == [PATIENCE] * 4


def test_image_asks_for_a_token_and_runs_as_nobody_in_particular() -> None:
    lines = IMAGE.splitlines()
    assert any(line.startswith("ENV ") and "RAY_AUTH_MODE=token" in line for line in lines)
    assert lines.index("USER ray") > lines.index("FROM python:3.11-slim")
    assert "useradd --create-home --uid 1000 ray" in IMAGE


def test_image_takes_what_there_is_and_nothing_that_was_made() -> None:
    taken = re.findall(r"^COPY (?!--from)(\S+) ", IMAGE, re.MULTILINE)
    assert taken == [".", "scenarios"]
    left = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert {".git", ".venv", "emu/_ext"} <= set(left)
    kept = {line.strip().strip("/") for line in (ROOT / ".gitignore").read_text("utf-8").splitlines()}
    assert {line for line in left if "*" not in line and not line.startswith(("#", ".git"))} <= kept
