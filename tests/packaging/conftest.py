"""The image of the Dockerfile without a container, and installations of the wheel that it builds."""

from __future__ import annotations

import pytest

from support.containers import Builder, in_stage
from support.installation import Installation, Wheel, install, link_required, read_wheel

FETCHING = "pip install --no-cache-dir --constraint"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """Perform the steps of the stages that build the dependencies' environment and the wheel."""
    builder = Builder(tmp_path_factory.mktemp("image"))
    for stage in ("dependencies", "wheel"):
        for step in in_stage(stage, "COPY"):
            builder.copy(step)
    list_packages, install_packages = in_stage("dependencies", "RUN")
    builder.run(list_packages.command(), "dependencies", EXTRAS="server,search")
    builder.run(install_packages.command().partition("&&")[0], "dependencies")
    fetch_builder, build = in_stage("wheel", "RUN")
    assert FETCHING in fetch_builder.value
    builder.run(build.command(), "wheel")
    return builder


@pytest.fixture(scope="session")
def wheel(built: Builder) -> Wheel:
    return read_wheel(built.folder / "dist")


@pytest.fixture(scope="session")
def full(built: Builder, wheel: Wheel) -> Installation:
    """Return the environment of the image."""
    installation = link_required(built.folder / "opt" / "weftline", wheel.requirements, ("search", "server"))
    _, install_wheel = in_stage("", "RUN")
    built.run(install_wheel.command(), "")
    return installation


@pytest.fixture(scope="session")
def light(wheel: Wheel, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return an environment with the wheel and nothing but what it asks for without extras."""
    return install(wheel, tmp_path_factory.mktemp("light") / "env")


@pytest.fixture(scope="session")
def server(wheel: Wheel, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Return an environment with weftline[server]."""
    return install(wheel, tmp_path_factory.mktemp("server") / "env", ("server",))
