"""Versioning of an S3 bucket: whether it is on, and turning it on.

Signed here with AWS Signature Version 4, because obstore has no requests about buckets.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import quote, urlsplit

import httpx2

if TYPE_CHECKING:
    from collections.abc import Mapping

_STATUS = re.compile(rb"<Status>\s*(\w+)\s*</Status>")
_QUERY = "versioning="
_ENABLED = (
    b'<VersioningConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
    b"<Status>Enabled</Status></VersioningConfiguration>"
)
_MAX_ANSWER_BYTES = 10_000
_OK = 200
_REFUSED = frozenset({401, 403})


class VersioningState(NamedTuple):
    """Whether a bucket now keeps versions, whether this call turned that on, and otherwise why not."""

    on: bool
    switched_on: bool = False
    reason: str = ""


class S3Location(NamedTuple):
    """A bucket and the service that has it; an empty endpoint is Amazon's, an empty region AWS_REGION."""

    bucket: str
    endpoint: str
    region: str

    @property
    def signed_region(self) -> str:
        names = ("AWS_REGION", "AWS_DEFAULT_REGION")
        return self.region or next((os.environ[name] for name in names if os.environ.get(name)), "us-east-1")

    @property
    def url(self) -> str:
        endpoint = self.endpoint or f"https://s3.{self.signed_region}.amazonaws.com"
        return f"{endpoint.rstrip('/')}/{quote(self.bucket)}"


async def turn_on_versioning(where: S3Location, timeout_seconds: float) -> VersioningState:
    """Turn versioning on for a bucket that never had it. One whose owner suspended it is left as it is."""
    if not (os.environ.get("AWS_ACCESS_KEY_ID") and os.environ.get("AWS_SECRET_ACCESS_KEY")):
        return VersioningState(on=False, reason="only credentials from AWS_ACCESS_KEY_ID can turn it on")
    try:
        async with httpx2.AsyncClient(timeout=timeout_seconds, follow_redirects=False) as http:
            asked = await _send(http, where, "GET")
            if asked.status_code != _OK:
                return VersioningState(on=False, reason=_refusal(asked.status_code, "s3:GetBucketVersioning"))
            found = _STATUS.search(asked.content[:_MAX_ANSWER_BYTES])
            if found is not None:
                return _present_state(found[1])
            answer = await _send(http, where, "PUT", _ENABLED)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        return VersioningState(on=False, reason=f"the service did not answer ({type(error).__name__})")
    if answer.status_code != _OK:
        return VersioningState(on=False, reason=_refusal(answer.status_code, "s3:PutBucketVersioning"))
    return VersioningState(on=True, switched_on=True)


def _present_state(status: bytes) -> VersioningState:
    if status == b"Enabled":
        return VersioningState(on=True)
    return VersioningState(on=False, reason="its owner suspended it")


def _refusal(status: int, permission: str) -> str:
    if status in _REFUSED:
        return f"the credentials do not allow {permission}"
    return f"the service does not support it (status {status})"


async def _send(
    http: httpx2.AsyncClient, where: S3Location, method: Literal["GET", "PUT"], body: bytes = b""
) -> httpx2.Response:
    headers = _signed_headers(where, method, body, datetime.now(UTC))
    return await http.request(method, f"{where.url}?{_QUERY}", headers=headers, content=body)


def _signed_headers(where: S3Location, method: str, body: bytes, now: datetime) -> dict[str, str]:
    """Return the headers of a request with its signature."""
    at, digest, url = now.strftime("%Y%m%dT%H%M%SZ"), hashlib.sha256(body).hexdigest(), urlsplit(where.url)
    headers = {"host": url.netloc, "x-amz-content-sha256": digest, "x-amz-date": at}
    if body:
        headers["content-md5"] = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
    if os.environ.get("AWS_SESSION_TOKEN"):
        headers["x-amz-security-token"] = os.environ["AWS_SESSION_TOKEN"]
    return {**headers, "authorization": _authorization(where, method, url.path, headers, at)}


def _authorization(where: S3Location, method: str, path: str, headers: Mapping[str, str], at: str) -> str:
    names = ";".join(sorted(headers))
    listed = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = "\n".join([method, path, _QUERY, listed, names, headers["x-amz-content-sha256"]])
    scope = f"{at[:8]}/{where.signed_region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", at, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{os.environ['AWS_SECRET_ACCESS_KEY']}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    credential = f"{os.environ['AWS_ACCESS_KEY_ID']}/{scope}"
    return f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
