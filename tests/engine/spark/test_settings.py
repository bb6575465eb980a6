"""Spark masters and the settings of penstock's own SparkContext."""

from __future__ import annotations

import os

import pytest
from pyspark import SparkConf

from engine.harness import config_of
from penstock import ConfigException
from penstock.engine.spark import settings
from penstock.engine.spark.settings import (
    build_conf,
    check_log,
    default_master,
    has_executors,
    is_local_master,
    is_loopback_master,
)


@pytest.mark.parametrize(("master", "is_here"), [
    ("local", True), ("local[2]", True), ("local[*]", True), ("local[2,4]", True),
    ("local-cluster[2,1,1024]", True), ("spark://host:7077", False), ("yarn", False),
    ("k8s://https://host:443", False), ("spark://127.0.0.1:7077", True),
    ("spark://localhost:7077", True), ("spark://127.0.0.1:7077,host:7077", False),
    ("spark://127.0.0.1.host:7077", False),
])
def test_embedded_log_requires_workers_on_this_host(master: str, is_here: bool) -> None:
    assert is_loopback_master(master) == is_here
    assert is_local_master(master) == (is_here and master.startswith("local"))
    check_log(config_of(log="kafka://host:9092"), master)
    if is_here:
        check_log(config_of(log="a.db"), master)
    else:
        with pytest.raises(ConfigException, match=r"a\.db cannot be used.*kafka://"):
            check_log(config_of(log="a.db"), master)


def test_default_master_has_one_core_per_stream_thread() -> None:
    assert default_master(config_of(num_stream_threads=3)) == "local[3]"
    assert default_master(config_of()) == f"local[{len(os.sched_getaffinity(0))}]"


def test_driver_binds_to_loopback_only_for_masters_on_this_host() -> None:
    for master, address in (("spark://127.0.0.1:7077", "127.0.0.1"), ("spark://host:7077", None)):
        conf = build_conf(config_of(), master)
        assert conf.get("spark.driver.host") == conf.get("spark.driver.bindAddress") == address
        assert conf.get("spark.master") == master


def test_paths_of_sockets_fit_in_containers_of_yarn() -> None:
    name = "spark.python.unix.domain.socket.dir"
    assert build_conf(config_of(), "yarn").get(name) == "/tmp"
    assert build_conf(config_of(), "spark://host:7077").get(name) is None
    mine = config_of(extra={name: "/run/orders"})
    assert build_conf(mine, "yarn").get(name) == "/run/orders"


def test_name_of_the_program_that_is_submitted_is_no_name_of_an_application(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for given, expected in (("__main__.py", "app"), ("shop", "shop")):
        conf = SparkConf(loadDefaults=False).set("spark.app.name", given)
        monkeypatch.setattr(settings, "SparkConf", lambda conf=conf, **_: conf)
        assert build_conf(config_of(), None).get("spark.app.name") == expected


def test_user_settings_override_the_defaults() -> None:
    conf = build_conf(
        config_of(extra={"spark.ui.enabled": "true", "spark.executor.memory": "3g"}), "local[2]"
    )
    assert conf.get("spark.ui.enabled") == "true"
    assert conf.get("spark.executor.memory") == "3g"
    assert conf.get("spark.driver.bindAddress") == "127.0.0.1"
    # A slot is left for jobs of the user.
    assert conf.get("spark.master") == "local[3,4]"
    assert conf.get("spark.app.name") == "app"


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", False), ("local[2]", False), ("local[*,4]", False),
        ("local-cluster[2,1,512]", True), ("spark://127.0.0.1:7077", True), ("yarn", True),
    ],
)
def test_every_master_but_local_has_executors(master: str, expected: bool) -> None:
    assert has_executors(master) is expected


def test_executors_have_short_timeouts_unless_the_user_sets_one() -> None:
    timeouts = (
        "spark.network.timeout", "spark.network.timeoutInterval", "spark.executor.heartbeatInterval"
    )
    for extra, expected in (
        ({}, ["20s", "4s", "2s"]),
        ({"spark.executor.heartbeatInterval": "30s"}, [None, None, "30s"]),
    ):
        conf = build_conf(config_of(extra=extra), "spark://host:7077")
        assert [conf.get(name) for name in timeouts] == expected
    assert [build_conf(config_of(), "local[2]").get(name) for name in timeouts] == [None] * 3


def test_lanes_wait_for_their_host_only_if_there_are_several() -> None:
    name = "spark.locality.wait"
    assert build_conf(config_of(), "local[2]").get(name) == "0"
    assert build_conf(config_of(), "spark://host:7077").get(name) == "3s"
    own = build_conf(config_of(extra={name: "1s"}), "spark://host:7077")
    assert own.get(name) == "1s"
