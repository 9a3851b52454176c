"""A local S3 service and its buckets."""

from __future__ import annotations

import logging
import secrets
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

REGION = "us-east-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "secret"}


@dataclass(frozen=True, slots=True)
class SharedBucket:
    """A bucket, accessed directly instead of through Weftline."""

    name: str
    client: Any

    def names(self) -> list[str]:
        return [each["Key"] for each in self.client.list_objects_v2(Bucket=self.name).get("Contents", [])]

    def versions(self, key: str) -> list[str]:
        listed = self.client.list_object_versions(Bucket=self.name, Prefix=key).get("Versions", [])
        return [each["VersionId"] for each in listed]

    def overwrite(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=content)

    def set_versioning(self, status: str) -> None:
        self.client.put_bucket_versioning(Bucket=self.name, VersioningConfiguration={"Status": status})


@contextmanager
def s3_service() -> Iterator[str]:
    """Yield the URL of a new local service."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from moto.server import ThreadedMotoServer  # noqa: PLC0415 - may warn when imported

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@contextmanager
def new_bucket(service: str) -> Iterator[SharedBucket]:
    """Yield a new bucket with versioning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import boto3  # noqa: PLC0415 - may warn when imported

        client = boto3.client(
            "s3",
            endpoint_url=service,
            region_name=REGION,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )
    bucket = SharedBucket(f"weftline-{secrets.token_hex(6)}", client)
    client.create_bucket(Bucket=bucket.name)
    bucket.set_versioning("Enabled")
    try:
        yield bucket
    finally:
        client.close()
