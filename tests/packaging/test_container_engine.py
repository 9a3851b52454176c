"""The image built and started by a container engine, where one is at hand: Docker, Podman or Buildah."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import httpx2
import pytest

from support.containers import in_stage, steps
from support.full_run import FULL
from support.installation import ROOT, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.req("WX-07"),
    pytest.mark.skipif(not FULL, reason="Building an image takes minutes: make test-full does it."),
]
_ENGINES = ("docker", "podman", "buildah")
_IMAGE = "weftline-test"
_START_SECONDS = 60.0


def run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=check)


@pytest.fixture(scope="module")
def engine() -> str:
    """Return the engine that works here and has, or can fetch, the image that ours is based on."""
    found = next(
        (name for name in _ENGINES if shutil.which(name) and not run(name, "info", check=False).returncode), ""
    )
    if not found:
        pytest.skip(f"None of {', '.join(_ENGINES)} is installed and works.")
    (version,) = (step.value.partition("=")[2] for step in steps() if step.value.startswith("PYTHON="))
    base = f"docker.io/library/python:{version}"
    inspect = ["inspect", "--type", "image"] if found == "buildah" else ["image", "inspect"]
    if run(found, *inspect, base, check=False).returncode and run(found, "pull", base, check=False).returncode:
        pytest.skip(f"{found} has no image {base}, and cannot fetch it.")
    return found


@pytest.fixture(scope="module")
def image(engine: str) -> str:
    # Health checks are a part of Docker's format only.
    built = run(
        engine, "build", *(() if engine == "docker" else ("--format", "docker")), "--tag", _IMAGE, ".", check=False
    )
    assert built.returncode == 0, built.stderr
    return _IMAGE


@contextlib.contextmanager
def started(engine: str, image: str, port: int) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Run the image; yield its process, and the command that runs another one in the container."""
    variables = ("--env", "WEFTLINE_HOST=127.0.0.1", "--env", f"WEFTLINE_PORT={port}")
    if engine == "buildah":
        container = run("buildah", "from", image).stdout.strip()
        (entry,), (command,) = (in_stage("", name) for name in ("ENTRYPOINT", "CMD"))
        command_line = ["run", *variables, container, "--", *entry.arguments(), *command.arguments()]
        inside, remove = ["buildah", "run", container, "--"], ["buildah", "rm", container]
    else:
        container = f"{image}-{port}"
        command_line = ["run", "--name", container, "--network", "host", *variables, image]
        inside, remove = [engine, "exec", container], [engine, "rm", "--force", container]
    server = subprocess.Popen([engine, *command_line], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield server, inside
    finally:
        server.terminate()
        server.communicate(timeout=_START_SECONDS)
        run(*remove, check=False)


def test_the_image_is_built_and_serves_as_a_user_without_rights(engine: str, image: str) -> None:
    port = free_port()
    with started(engine, image, port) as (server, inside):
        assert server.stdout is not None
        key = next(found[0] for line in server.stdout if (found := re.search(r"weftline\.default\.key_\S+", line)))
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=_START_SECONDS) as http:
            until = time.monotonic() + _START_SECONDS
            while True:
                with contextlib.suppress(httpx2.HTTPError):
                    if http.get("/ready").is_success:
                        break
                assert time.monotonic() < until
                time.sleep(0.2)
            headers = {"Authorization": f"Bearer {key}"}
            created = http.post("/v1/agents", headers=headers, json={"agent_id": "planner"})
            assert (created.status_code, created.json()["participant"]) == (201, "orchestrator:planner")
        who = run(*inside, "sh", "-c", "id -u; stat -c '%u %a' /data; ls /data").stdout.split()
        assert who[:3] == ["10001", "10001", "700"]
        assert "weftline.db" in who
