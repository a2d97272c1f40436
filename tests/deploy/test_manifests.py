"""What stands in `deploy/` has the shape that Ray and KubeRay ask for, and asks emu for nothing it lacks."""

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

from emu.cli.run_command import command
from tests.scenarios_run.small import ROOT

DEPLOY = ROOT / "deploy"
MANIFESTS = sorted(path.name for path in (DEPLOY / "kuberay").glob("*.yaml"))


def manifest(name: str) -> Any:
    return yaml.safe_load((DEPLOY / "kuberay" / name).read_text("utf-8"))


def cluster_spec(name: str) -> Any:
    spec = manifest(name)["spec"]
    return spec.get("rayClusterSpec", spec)


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifest_has_the_fields_of_its_kind(name: str) -> None:
    schema = json.loads((DEPLOY / "kuberay" / "schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(manifest(name), schema)


def test_a_misspelt_field_is_noticed() -> None:
    schema = json.loads((DEPLOY / "kuberay" / "schema.json").read_text("utf-8"))
    wrong = manifest("raycluster.yaml")
    wrong["spec"]["workerGroupSpecs"][0]["maxReplica"] = 3
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema)


@pytest.mark.parametrize("name", MANIFESTS)
def test_cluster_asks_for_a_token_and_is_of_the_pinned_ray(name: str) -> None:
    pinned = re.search(r"^ray==(\S+)", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    assert pinned is not None
    assert cluster_spec(name)["authOptions"] == {"mode": "token"}
    assert cluster_spec(name)["rayVersion"] == pinned.group(1)


def test_job_runs_a_command_that_emu_has_on_a_scenario_that_exists() -> None:
    words = shlex.split(manifest("rayjob.yaml")["spec"]["entrypoint"])
    assert words[:2] == ["emu", "run"]
    assert (ROOT / "scenarios" / Path(words[2]).name).exists()
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


def test_image_asks_for_a_token_and_runs_as_nobody_in_particular() -> None:
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").splitlines()
    assert any(line.startswith("ENV ") and "RAY_AUTH_MODE=token" in line for line in lines)
    assert "USER ray" in lines
