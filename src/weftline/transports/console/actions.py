"""Forms: each sends the fields of one operation, and returns to the page it was sent from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weftline.kernel.errors import InvalidInput, UnknownOperation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.app.app import App
    from weftline.transports.console.sign_in import Browser

# Operations that pages have forms for, and what is said once each was performed.
DONE = {
    "agent.create": "The agent is created.",
    "alerts.acknowledge": "The alert is acknowledged.",
    "alerts.resolve": "The alert is resolved.",
    "approval.approve": "The call was approved and performed.",
    "approval.reject": "The call was rejected.",
    "board.write": "The key is written.",
    "history.close_review": "The review is closed; nothing was merged.",
    "history.resolve": "The merge is decided.",
    "history.rollback": "The context was rolled back; the rollback is a new version.",
    "key.create": "The key is created.",
    "key.revoke": "The key and its tokens are revoked.",
    "knowledge.add_document": "The document is added and is being indexed.",
    "knowledge.create_domain": "The domain is created.",
    "knowledge.discard_document": "The held version was discarded.",
    "knowledge.release_document": "The document was released and is being indexed.",
    "memory.set": "The entry is saved.",
    "message.add": "The message is sent.",
    "session.create": "The session is created.",
    "webhook.replay": "The deliveries are sent again.",
}
# What forms send besides the fields of the operation.
FORM_TOKEN, RETURN_TO = "form_token", "return_to"
_RESOLUTION, _VALUE, _VALUES_ARE = "resolution:", "value:", "values_are"
# Fields of operations that take several values; a form sends them with commas.
_LISTS = frozenset({"members", "permissions", "seqs"})


async def perform(app: App, browser: Browser, name: str, form: Mapping[str, str]) -> Any:  # noqa: ANN401 - its answer
    """Perform the operation of a form, and return what it answers."""
    if name not in DONE:
        raise UnknownOperation(f"There is no form for '{name}'.")
    own = {FORM_TOKEN, RETURN_TO}
    given: dict[str, Any] = {
        field: [each.strip() for each in text.split(",")] if field in _LISTS else _lines(text)
        for field, text in form.items()
        if text != "" and field not in own and not field.startswith((_RESOLUTION, _VALUE, _VALUES_ARE))
    }
    if form.get(_VALUES_ARE) == "json" and "value" in given:
        given["value"] = _parsed(given["value"], "value")
    resolutions = {
        field.removeprefix(_RESOLUTION): _resolution(choice, field.removeprefix(_RESOLUTION), form)
        for field, choice in form.items()
        if field.startswith(_RESOLUTION)
    }
    if resolutions:
        given["resolutions"] = resolutions
    return await app.call(app.registry[name], given, browser.context, strict=False)


def _lines(text: str) -> str:
    """Return a text of a form; a browser ends its lines with two characters."""
    return text.replace("\r\n", "\n")


def _resolution(choice: str, key: str, form: Mapping[str, str]) -> dict[str, Any]:
    if choice not in {"ours", "theirs", "base", "value"}:
        raise InvalidInput(f"'{choice[:50]}' is not a side of a merge.", field="resolutions")
    if choice != "value":
        return {"take": choice}
    text = _lines(form.get(f"{_VALUE}{key}", ""))
    return {
        "take": choice,
        "value": text if form.get(f"{_VALUES_ARE}:{key}") != "json" else _parsed(text, "resolutions"),
    }


def _parsed(text: str, field: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"The new value is not valid JSON: {error}", field=field) from error
