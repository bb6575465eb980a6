"""A new project runs on Spark with the manifests' settings, as pods that are processes.

Spark talks to a server that imitates a part of the Kubernetes API (`pod_server.py`). Everything
else is real: the driver, the executors that the entry point of the image starts, and Kafka.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from deploy.pod_server import PodServer
from deploy.test_containers import ENTRYPOINT
from deploy.test_kubernetes import driver, find, properties
from penstock.broker.cluster import ClusterStatus, LocalCluster
from penstock.broker.properties import BrokerOptions
from penstock.cli.project import create_project

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

DRIVER_POD = "orders-0"
#: Of the cluster that the manifests expect: security, several brokers.
OTHER_CLUSTER = ("bootstrap.", "security.", "sasl.", "replication.")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project") / "orders"
    create_project("orders", folder)
    lines = [
        f"{name}={value}" for name, value in properties().items()
        if not name.startswith(OTHER_CLUSTER)
    ]
    (folder / "cluster.properties").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def broker(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterStatus]:
    """A broker with the topics of the project and its sample data."""
    cluster = LocalCluster(tmp_path_factory.mktemp("kafka"))
    with cluster.for_this_process(BrokerOptions(port=0, for_tests=True)) as status:
        variables = environment(project, PENSTOCK_LOG=status.address)
        run(project, variables, "penstock", "topics", "create", "orders", "revenue",
            "--partitions", "2")
        sample = run(project, variables, "orders.sample_data", "--records", "100")
        run(project, variables, "penstock", "produce", "orders", "--json", stdin=sample)
        yield status


def environment(project: Path, **variables: str) -> dict[str, str]:
    scripts = os.path.dirname(sys.executable)
    path = [str(project), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        # The image has the project installed.
        "PYTHONPATH": os.pathsep.join(path), **variables,
    }


def run(
    folder: Path, variables: Mapping[str, str], module: str, *arguments: str, stdin: bytes = b""
) -> bytes:
    """Run a module to its end and return its output."""
    ran = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=folder, env=variables, input=stdin,
        capture_output=True, check=False, timeout=600,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout


@pytest.fixture
def server(project: Path, tmp_path: Path) -> Iterator[PodServer]:
    def start(arguments: list[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with (tmp_path / "executor.log").open("ab") as log:
            return subprocess.Popen(
                ["bash", str(ENTRYPOINT), *arguments], cwd=tmp_path, stdout=log, stderr=log,
                env=environment(
                    project, **{**variables, "SPARK_LOCAL_DIRS": str(tmp_path / "spark")}
                ),
            )

    server = PodServer(DRIVER_POD, start)
    yield server
    server.close()


@pytest.mark.parametrize(
    "execution", [pytest.param("batch", marks=pytest.mark.exhaustive), "continuous"]
)
def test_project_runs_with_the_settings_of_the_manifests(
    project: Path, server: PodServer, tmp_path: Path, broker: ClusterStatus, execution: str
) -> None:
    variables = environment(
        project,
        PENSTOCK_LOG=broker.address,
        PENSTOCK_SET_BOOTSTRAP_SERVERS=broker.bootstrap_servers,
        PENSTOCK_SET_APPLICATION_ID=f"orders-{execution}",
        PENSTOCK_SET_spark_kubernetes_driver_pod_name=DRIVER_POD,
        PENSTOCK_SET_spark_driver_host="127.0.0.1",
        # Tests run side by side on a small machine.
        PENSTOCK_SET_spark_driver_port="0", PENSTOCK_SET_spark_blockManager_port="0",
        PENSTOCK_SET_spark_executor_instances="1", PENSTOCK_SET_spark_executor_memory="512m",
        # The server has no watches.
        PENSTOCK_SET_spark_kubernetes_executor_enableApiWatcher="false",
        PENSTOCK_SET_spark_kubernetes_executor_apiPollingInterval="1s",
    )
    run(
        project, variables, "penstock", "run", "orders.topology", "--config", "cluster.properties",
        "--once", "--master", f"k8s://{server.address}", "--state-dir", str(tmp_path / "state"),
        "--execution", execution,
    )
    application = variables["PENSTOCK_SET_APPLICATION_ID"]
    rows = run(project, variables, "penstock", "query", application, "revenue").splitlines()
    revenues = [json.loads(row.partition(b"\t")[2]) for row in rows]
    assert sum(revenue["orders"] for revenue in revenues) == 100
    check_pods(server)


def check_pods(server: PodServer) -> None:
    """The pods of executors are those that the manifests describe, and have ended."""
    assert server.created
    account = properties()["spark.kubernetes.authenticate.executor.serviceAccountName"]
    for pod in server.created:
        (container,) = pod["spec"]["containers"]
        assert container["image"] == driver()["image"]
        assert pod["spec"]["serviceAccountName"] == account
        assert pod["metadata"]["namespace"] == find("Namespace")["metadata"]["name"]
        assert [each["name"] for each in pod["metadata"]["ownerReferences"]] == [DRIVER_POD]
        mounts = {each["mountPath"] for each in container["volumeMounts"]}
        assert properties()["state.dir"] in mounts
    # The driver has deleted them.
    assert server.running_processes() == []
