"""How many Ray actors a cluster gets, and the KubeRay example; no Ray is started."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from backfill.config import LauncherConfig
from backfill.launchers.ray import places
from tests.conftest import ROOT

BOX = {"CPU": 16.0, "GPU": 4.0}
CORES = {"CPU": 10.0}


@pytest.mark.parametrize(
    ("launcher", "stage", "resources", "wanted"),
    [
        ({"workers": 0}, "distill", BOX, (4, 1.0)),
        ({"workers": 0, "gpus_per_worker": 0.5}, "distill", BOX, (8, 0.5)),
        ({"workers": 2, "gpus_per_worker": 1.0}, "embed", BOX, (2, 1.0)),
        ({"workers": 0, "cpus_per_worker": 4.0}, "scan", BOX, (4, 0.0)),
        ({"workers": 0, "cpus_per_worker": 4.0}, "distill", CORES, (2, 0.0)),
        ({"workers": 0, "cpus_per_worker": 40.0}, "distill", CORES, (1, 0.0)),
        ({"workers": 7}, "distill", CORES, (7, 0.0)),
        ({"workers": 0, "gpus_per_worker": 1.0}, "distill", CORES, (1, 1.0)),
    ],
)
def test_places(launcher: dict[str, Any], stage: str, resources: dict[str, float], wanted: tuple[int, float]) -> None:
    assert places(LauncherConfig(kind="ray", **launcher), stage, resources) == wanted


def test_the_kuberay_example_is_a_job_of_one_volume() -> None:
    job = yaml.safe_load((ROOT / "docker" / "backfill-rayjob.yaml").read_text())
    spec = job["spec"]
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert yaml.safe_load(spec["runtimeEnvYAML"])["env_vars"]["HF_HUB_OFFLINE"] == "1"
    groups = [spec["rayClusterSpec"]["headGroupSpec"], *spec["rayClusterSpec"]["workerGroupSpecs"]]
    for group in groups:
        pod = group["template"]["spec"]
        claims = [v["name"] for v in pod["volumes"] if "persistentVolumeClaim" in v]
        [container] = pod["containers"]
        assert claims == ["shared"]
        assert {"name": "shared", "mountPath": "/shared"} in container["volumeMounts"]
    assert spec["entrypoint"].startswith("backfill run /shared/")
