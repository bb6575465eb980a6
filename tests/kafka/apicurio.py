"""Apicurio Registry, a real schema registry with the API of Confluent's, for the tests.

`python tests/kafka/apicurio.py` downloads it from Maven Central into the cache directory of
penstock. Afterwards the tests work offline. 3.0 is its last series that runs with Java 17.
"""

from __future__ import annotations

import socket
import subprocess
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.broker import jars
from penstock.broker.jars import cache_directory, java
from penstock.broker.repository import ivy_settings, repository_url

VERSION = "3.0.9"
_NAME = f"apicurio-registry-app-{VERSION}"
_MODULE = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="penstock" module="registry"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}"
                conf="default->default" transitive="false">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""
_START_TIMEOUT_S = 90


def directory() -> Path:
    return cache_directory().parent / f"apicurio-{VERSION}"


def is_fetched() -> bool:
    return (directory() / f"{_NAME}-runner.jar").exists()


def fetch() -> None:
    """Download the registry with the Ivy of PySpark; the directory is complete or absent."""
    directory().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory().parent) as name:
        scratch = Path(name)
        (scratch / "ivy.xml").write_text(_MODULE, encoding="utf-8")
        # Its POM has a parent that the repository does not hold.
        settings = ivy_settings(repository_url()).replace("<ibiblio", '<ibiblio usepoms="false"')
        (scratch / "ivysettings.xml").write_text(settings, encoding="utf-8")
        subprocess.run(
            [java(), "-jar", str(jars._ivy_jar()), "-settings", str(scratch / "ivysettings.xml"),
             "-ivy", str(scratch / "ivy.xml"), "-cache", str(scratch / "ivy-cache")],
            check=True, timeout=900, stdout=subprocess.DEVNULL,
        )
        [archive] = (scratch / "ivy-cache").rglob("*.tar.gz")
        with tarfile.open(archive) as files:
            files.extractall(scratch / "unpacked", filter="data")
        (scratch / "unpacked").rename(directory())


@contextmanager
def running(log: Path) -> Iterator[str]:
    """Run a registry that keeps its schemas in memory; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [java(), "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
             "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}",
             "-jar", f"{_NAME}-runner.jar"],
            cwd=directory(), stdout=output, stderr=subprocess.STDOUT,
        )
    try:
        _wait_until_ready(process, url, log)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/subjects", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"The registry did not start: {log.read_text(errors='replace')[-2000:]}")


if __name__ == "__main__" and not is_fetched():
    print(f"Downloading Apicurio Registry {VERSION} (about 105 MB).", flush=True)
    fetch()
