"""The same DAGs over S3 and on a Spark cluster: only the zone's file names other ones.

The cluster and the server are those of the tests of Spark and of object storage.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.dags.dag_queries import ByDag, answered
from support.dags.dag_zones import HTTP, Site, veen
from support.objects import object_servers
from support.spark import spark_standalone

pytestmark = pytest.mark.timeout(900)
RESULT = "r-" + "5" * 32
FOLD = f"""[dags.fold]
streams = ["{HTTP}"]
plaintext_at_rest = true
[dags.acting]"""
BUCKET_URL = "s3://archive/z1"


@pytest.fixture(scope="module")
def keys() -> dict[str, str]:
    result = {
        "AWS_ACCESS_KEY_ID": object_servers.KEYS.access_key,
        "AWS_SECRET_ACCESS_KEY": object_servers.KEYS.secret_key,
    }
    return result | {"PYSPARK_PYTHON": sys.executable}


@pytest.fixture(scope="module")
def z1(
    dag_zone_pair: tuple[Site, Site],
    keys: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    site = dag_zone_pair[0]
    server = object_servers.moto()
    work = tmp_path_factory.mktemp("spark-work")
    try:
        with spark_standalone.cluster(os.environ | keys, work) as master:
            site.configure("[dags.acting]", FOLD)
            store = f'url = "{BUCKET_URL}"\nendpoint = "{server.endpoint}"\naddressing = "path"\n'
            text = site.file.read_text()
            head, _, rest = text.partition("[storage]\n")
            _, _, tail = rest.partition("[spark]\n")
            _, _, tail = tail.partition("\n")
            conf = dict(item.split("=", 1) for item in spark_standalone.LIGHT)
            lines = "".join(f"{json.dumps(k)} = {json.dumps(v)}\n" for k, v in conf.items())
            spark = f'[spark]\nmaster = "{master}"\n[spark.conf]\n{lines}'
            site.file.write_text(f"{head}[storage]\n{store}{spark}{tail}")
            yield site
    finally:
        server.stop()


def test_the_dags_run_on_a_cluster_over_s3(z1: Site, keys: dict[str, str]) -> None:
    zone = z1.home.zone()
    assert zone.spark.master.startswith("spark://")
    names = ("veen_checkpoint", "veen_archive", "veen_audit", "veen_fold")
    runs = z1.run(*({"dag_id": name} for name in names), **keys)
    for run in runs:
        assert run.state == "success", run.log[-6000:]
        assert set(run.tasks.values()) == {"success"}
    for run in runs[2:]:
        assert f"--master {zone.spark.master}" in run.log
    (fold,) = z1.artefacts("fold")
    assert fold.summary["upto_stream_seq"] == 20
    (audit,) = z1.artefacts("audit")
    assert (audit.state, audit.summary["faults"]) == ("whole", 0)
    assert audit.summary["entries"] >= 20
    assert zone.storage is not None
    held = veen("archive", "status", *zone.storage.arguments(), **keys)
    assert held["kind"] == "s3"
    assert [item["hub_id"] for item in held["hubs"]] == [zone.hub_id.hex()]
    assert not (z1.home.root / "objects").exists()


@pytest.mark.long
def test_a_query_runs_on_a_cluster_over_s3(z1: Site, keys: dict[str, str], tmp_path: Path) -> None:
    by = ByDag(z1, {}, **keys)
    assert answered(z1, by, RESULT, tmp_path).row_count == 20
    assert f"--master {z1.home.zone().spark.master}" in by.runs[0].log
    assert f"--store {BUCKET_URL}" in by.runs[0].log


@pytest.mark.long
def test_a_reconciliation_runs_on_a_cluster(
    dag_zone_pair: tuple[Site, Site], z1: Site, keys: dict[str, str]
) -> None:
    z2, master = dag_zone_pair[1], z1.home.zone().spark.master
    z2.configure("[dags]", '[dags]\nreconcile_on = "spark"')
    z2.configure('master = "local[2]"', f'master = "{master}"')
    (run,) = z2.run({"dag_id": "veen_reconcile"}, **keys)
    assert set(run.tasks.values()) == {"success"}, run.log[-6000:]
    assert f"--master {master}" in run.log
    assert [item.state for item in z2.artefacts("reconcile")] == ["whole"]
