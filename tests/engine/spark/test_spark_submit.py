"""Settings that are given to spark-submit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.spark]

SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
PROGRAM = """
import json
import sys

from penstock import StreamsConfig
from penstock.engine.spark.backend import open_backend

backend = open_backend(StreamsConfig(application_id="orders"))
conf = backend.context.getConf()
print(json.dumps({name: conf.get(name) for name in sys.argv[1:]}))
backend.close()
"""


def test_settings_of_spark_submit_override_the_defaults(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    names = ("spark.app.name", "spark.locality.wait", "spark.ui.retainedJobs", "spark.master")
    ran = subprocess.run(
        [str(SUBMIT), "--master", "local[1]", "--name", "shop", "--conf", "spark.locality.wait=7s",
         str(program), *names],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable}, capture_output=True, text=True,
        check=False, timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "spark.app.name": "shop", "spark.locality.wait": "7s", "spark.ui.retainedJobs": "20",
        "spark.master": "local[1]",
    }
