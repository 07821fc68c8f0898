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


# Fields of KubeRay's ray.io/v1 types (rayjob_types.go, raycluster_types.go, 1.6): those that must be there, and others.
FIELDS: dict[str, tuple[set[str], set[str]]] = {
    "RayJobSpec": (
        {"entrypoint", "rayClusterSpec"},  # the latter, or a clusterSelector
        {"activeDeadlineSeconds", "backoffLimit", "deletionStrategy", "entrypointNumCpus", "entrypointNumGpus",
         "entrypointResources", "jobId", "managedBy", "metadata", "runtimeEnvYAML", "shutdownAfterJobFinishes",
         "submissionMode", "submitterConfig", "submitterPodTemplate", "suspend", "ttlSecondsAfterFinished"},
    ),
    "RayClusterSpec": (
        {"headGroupSpec"},
        {"authOptions", "autoscalerOptions", "enableInTreeAutoscaling", "gcsFaultToleranceOptions",
         "headServiceAnnotations", "managedBy", "rayVersion", "suspend", "workerGroupSpecs"},
    ),
    "HeadGroupSpec": (
        {"rayStartParams", "template"}, {"enableIngress", "headService", "labels", "resources", "serviceType"},
    ),
    "WorkerGroupSpec": (
        {"groupName", "rayStartParams", "template", "minReplicas", "maxReplicas"},
        {"idleTimeoutSeconds", "labels", "numOfHosts", "replicas", "resources", "scaleStrategy", "suspend"},
    ),
}  # fmt: skip


def test_the_kuberay_example_has_the_fields_of_a_ray_job() -> None:
    job = yaml.safe_load((ROOT / "docker" / "backfill-rayjob.yaml").read_text())
    cluster = job["spec"]["rayClusterSpec"]
    workers = cluster["workerGroupSpecs"]
    parts = [("RayJobSpec", job["spec"]), ("RayClusterSpec", cluster), ("HeadGroupSpec", cluster["headGroupSpec"])]
    for kind, part in [*parts, *(("WorkerGroupSpec", group) for group in workers)]:
        required, others = FIELDS[kind]
        assert required <= set(part) <= required | others, kind
    assert job["metadata"]["name"]
    assert cluster["authOptions"] == {"mode": "token"}
    assert tuple(map(int, cluster["rayVersion"].split("."))) >= (2, 52, 0), "older ones know no token"
    for group in (cluster["headGroupSpec"], *workers):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        for container in group["template"]["spec"]["containers"]:
            assert {"name", "image", "resources"} <= set(container)
    assert all(group["minReplicas"] <= group["replicas"] <= group["maxReplicas"] for group in workers)
    assert {type(job["spec"][name]) for name in ("backoffLimit", "ttlSecondsAfterFinished")} == {int}


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
