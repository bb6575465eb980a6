"""The manifests are valid, belong together, and use commands, settings and paths that exist."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.commands import ROOT, parse_command, settings_of, unknown_settings
from penstock import StreamsConfig
from penstock.cli.project import project_files
from penstock.properties import parse_properties

FOLDER = ROOT / "deploy" / "kubernetes"
#: Kind -> its version, and the required fields below the top.
KINDS = {
    "Namespace": ("v1", ()),
    "ServiceAccount": ("v1", ()),
    "ConfigMap": ("v1", ("data",)),
    "Secret": ("v1", ("stringData",)),
    "Service": ("v1", ("spec.ports", "spec.selector")),
    "Role": ("rbac.authorization.k8s.io/v1", ("rules",)),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", ("roleRef", "subjects")),
    "Deployment": ("apps/v1", ("spec.selector.matchLabels", "spec.template.spec.containers")),
}


def read(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def field(document: Any, path: str) -> Any:
    for name in path.split("."):
        document = document[name]
    return document


DOCUMENTS = [
    document for path in sorted(FOLDER.glob("*.yaml")) if path.name != "kustomization.yaml"
    for document in read(path)
]


def find(kind: str, name: str = "") -> dict[str, Any]:
    (found,) = [
        each for each in DOCUMENTS
        if each["kind"] == kind and name in ("", each["metadata"]["name"])
    ]
    return found


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = find("Deployment")["spec"]["template"]["spec"]
    return spec


def driver() -> dict[str, Any]:
    (container,) = pod()["containers"]
    result: dict[str, Any] = container
    return result


def properties() -> dict[str, str]:
    return parse_properties(find("ConfigMap")["data"]["streams.properties"])


def variables() -> dict[str, str]:
    return {each["name"]: each.get("value", "from-the-cluster") for each in driver()["env"]}


def test_kustomization_lists_every_manifest() -> None:
    (kustomization,) = read(FOLDER / "kustomization.yaml")
    files = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert kustomization["kind"] == "Kustomization"
    assert sorted(kustomization["resources"]) == sorted(files)


@pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}"
)
def test_manifest_has_the_fields_of_its_kind(document: dict[str, Any]) -> None:
    version, required = KINDS[document["kind"]]
    assert document["apiVersion"] == version
    for path in required:
        assert field(document, path), path
    known = {"apiVersion", "kind", "metadata", *(path.split(".")[0] for path in required)}
    optional = {"Secret": {"type"}, "ServiceAccount": {"automountServiceAccountToken"}}
    assert document.keys() - known - optional.get(document["kind"], set()) == set()
    if document["kind"] != "Namespace":
        assert document["metadata"]["namespace"] == find("Namespace")["metadata"]["name"]


def test_names_are_unique_within_a_kind() -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in DOCUMENTS]
    assert len(names) == len(set(names))


def test_role_of_the_driver_allows_to_manage_executors() -> None:
    binding = find("RoleBinding")
    role = find("Role", binding["roleRef"]["name"])
    assert binding["roleRef"]["kind"] == "Role"
    (subject,) = binding["subjects"]
    account = find("ServiceAccount", subject["name"])
    assert subject["namespace"] == account["metadata"]["namespace"]
    assert pod()["serviceAccountName"] == subject["name"]
    (rule,) = role["rules"]
    assert {"pods", "configmaps"} <= set(rule["resources"])
    assert {"create", "get", "list", "watch", "delete", "deletecollection"} <= set(rule["verbs"])
    assert "*" not in rule["resources"] + rule["verbs"]


def test_executors_have_an_account_without_access() -> None:
    name = properties()["spark.kubernetes.authenticate.executor.serviceAccountName"]
    assert find("ServiceAccount", name)["automountServiceAccountToken"] is False
    assert name != pod()["serviceAccountName"]


def test_selectors_match_the_labels_of_the_driver() -> None:
    labels = find("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert find("Deployment")["spec"]["selector"]["matchLabels"].items() <= labels.items()
    service = find("Service")["spec"]
    assert service["selector"].items() <= labels.items()
    assert service["clusterIP"] == "None"
    ports = {each["name"] for each in driver()["ports"]}
    assert {each["targetPort"] for each in service["ports"]} <= ports


def test_command_line_is_accepted_and_names_files_that_are_mounted() -> None:
    args = parse_command(driver()["args"])
    assert args.master.startswith("k8s://https://")
    mounts = {each["mountPath"]: each["name"] for each in driver()["volumeMounts"]}
    volumes = {each["name"]: each for each in pod()["volumes"]}
    assert set(mounts.values()) == volumes.keys()
    (config,) = args.config
    folder, _, file = config.rpartition("/")
    assert volumes[mounts[folder]]["configMap"]["name"] == find("ConfigMap")["metadata"]["name"]
    assert file in find("ConfigMap")["data"]
    folder, _, file = args.token_file.rpartition("/")
    secret = volumes[mounts[folder]]["secret"]
    assert secret["secretName"] == find("Secret")["metadata"]["name"]
    (item,) = secret["items"]
    assert item["path"] == file
    assert item["key"] in find("Secret")["stringData"]
    assert properties()["state.dir"] in mounts
    # Everything else is read-only, and Spark writes to the temporary directory.
    assert driver()["securityContext"]["readOnlyRootFilesystem"] is True
    assert "/tmp" in mounts


def test_topology_is_that_of_a_project_with_this_name() -> None:
    args = parse_command(driver()["args"])
    name = find("Deployment")["metadata"]["name"]
    assert args.target.replace(".", "/") + ".py" in project_files(name)
    assert properties()["application.id"] == name


def test_settings_exist_and_form_a_configuration() -> None:
    settings = {**properties(), **settings_of(variables())}
    assert unknown_settings(settings) == []
    config = StreamsConfig.from_properties(settings)
    assert config.log == f"kafka://{settings['bootstrap.servers']}"
    assert config.warnings() == []
    assert config.application_server == "$(POD_IP):8080"


def test_unknown_settings_are_found() -> None:
    assert unknown_settings([
        "spark.executor.memoryOverhed", "spark.kubernetes.container.img", "comit.interval.ms",
        "spark.executor.memory",
    ]) == ["comit.interval.ms", "spark.executor.memoryOverhed", "spark.kubernetes.container.img"]


def test_secrets_are_only_in_the_secret() -> None:
    secret = find("Secret")
    references = [
        each["valueFrom"]["secretKeyRef"] for each in driver()["env"]
        if "secretKeyRef" in each.get("valueFrom", {})
    ]
    assert [each["name"] for each in references] == [secret["metadata"]["name"]]
    assert {each["key"] for each in references} <= secret["stringData"].keys()
    assert [name for name in properties() if "password" in name or "token" in name] == []


def test_executors_use_the_image_and_the_state_directory_of_the_driver() -> None:
    settings = properties()
    assert settings["spark.kubernetes.container.image"] == driver()["image"]
    assert settings["spark.kubernetes.namespace"] == find("Namespace")["metadata"]["name"]
    mount = "spark.kubernetes.executor.volumes.emptyDir.state.mount.path"
    assert settings[mount] == settings["state.dir"]
    ports = {each["containerPort"] for each in driver()["ports"]}
    assert {int(settings["spark.driver.port"]), int(settings["spark.blockManager.port"])} <= ports


def paths(container: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        request = container[name]["httpGet"]
        assert request["port"] == "http"
        yield name, request["path"]


def test_probes_use_paths_of_the_rest_interface_that_need_no_token() -> None:
    pytest.importorskip("fastapi")
    from penstock.queries.http.authentication import OPEN_PATHS

    assert dict(paths(driver())) == {
        "startupProbe": "/health", "livenessProbe": "/health", "readinessProbe": "/ready",
    }
    assert {path for _, path in paths(driver())} <= OPEN_PATHS
    source = (ROOT / "src/penstock/queries/http/status_routes.py").read_text(encoding="utf-8")
    for _, path in paths(driver()):
        assert f'"{path}", tags=' in source
    args = parse_command(driver()["args"])
    (http,) = [each for each in driver()["ports"] if each["name"] == "http"]
    assert (args.serve.host, args.serve.port) == ("0.0.0.0", http["containerPort"])


def test_containers_run_without_privileges() -> None:
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert pod()["securityContext"]["runAsUser"] == 10001
    own = driver()["securityContext"]
    assert own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}
