"""Settings from the environment, and refused values."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from weftline.settings import InvalidSetting, Settings


def test_arguments_override_environment_variables() -> None:
    environment = {
        "WEFTLINE_PORT": "9000",
        "WEFTLINE_DATA_DIR": "/var/weftline",
        "WEFTLINE_TOKEN_MINUTES": "5",
        "WEFTLINE_HOST": "",
    }
    settings = Settings.from_environment(environment, port=9001, data_dir=None)
    assert (settings.port, settings.data_dir, settings.token_minutes, settings.host) == (
        9001,
        "/var/weftline",
        5,
        "127.0.0.1",
    )


@pytest.mark.parametrize(
    "environment",
    [{"WEFTLINE_PORT": "many"}, {"WEFTLINE_PORT": "65536"}, {"WEFTLINE_PORT": "-1"}, {"WEFTLINE_TOKEN_MINUTES": "1.5"}],
)
def test_invalid_numbers_are_refused_by_setting_name(environment: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting, match=next(iter(environment))):
        Settings.from_environment(environment)


def test_an_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(InvalidSetting, match="prot"):
        Settings.from_environment({}, prot=1)


def test_the_database_is_in_the_data_folder_unless_a_url_is_set() -> None:
    assert Settings(data_dir="/var/weftline").storage_url == "/var/weftline/weftline.db"
    assert Settings(database_url="postgresql://db/weftline").storage_url == "postgresql://db/weftline"


def test_every_setting_has_a_variable_and_a_description() -> None:
    variables = [field.metadata["env"] for field in fields(Settings)]
    assert len(set(variables)) == len(variables)
    assert all(variable.startswith("WEFTLINE_") for variable in variables)
    assert all(field.metadata["meaning"].endswith(".") for field in fields(Settings))


@pytest.mark.req("WX-07")
def test_a_secret_can_be_read_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "database_url"
    secret.write_text("postgresql://weftline:secret@db/weftline\n")
    settings = Settings.from_environment({"WEFTLINE_DATABASE_URL_FILE": str(secret), "WEFTLINE_PORT_FILE": ""})
    assert settings.database_url == "postgresql://weftline:secret@db/weftline"


@pytest.mark.req("WX-07")
@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ({"WEFTLINE_EMBEDDING_KEY_FILE": "sk-put-in-the-wrong-variable"}, "WEFTLINE_EMBEDDING_KEY_FILE"),
        ({"WEFTLINE_EMBEDDING_KEY_FILE": "/x", "WEFTLINE_EMBEDDING_KEY": "sk-given-twice"}, "both set"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_without_showing_it(environment: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidSetting, match=problem) as caught:
        Settings.from_environment(environment)
    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:9"),
        ("weftline.example.com", "http://weftline.example.com:9"),
        ("0.0.0.0", "http://127.0.0.1:9"),
        ("::", "http://127.0.0.1:9"),
        ("", "http://127.0.0.1:9"),
        ("::1", "http://[::1]:9"),
        ("fd00::7", "http://[fd00::7]:9"),
    ],
)
def test_the_address_of_a_server_can_be_opened(host: str, url: str) -> None:
    assert Settings(host=host, port=9).address() == url
    assert Settings(host=host, port=8).address(9) == url
