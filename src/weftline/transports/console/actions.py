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
    "alerts.acknowledge": "The alert is acknowledged.",
    "alerts.resolve": "The alert is resolved.",
    "approval.approve": "The call was approved and performed.",
    "approval.refuse": "The call was refused.",
    "history.close_review": "The review is closed; nothing was merged.",
    "history.resolve": "The merge is decided.",
    "history.rollback": "The context was rolled back; the rollback is a new version.",
    "key.revoke": "The key and its tokens are revoked.",
    "knowledge.discard_document": "The held version was discarded.",
    "knowledge.release_document": "The document was released and is being indexed.",
    "webhook.replay": "The deliveries are sent again.",
}
# What forms send besides the fields of the operation.
FORM_TOKEN, RETURN_TO = "form_token", "return_to"
_RESOLUTION, _VALUE, _VALUES_ARE = "resolution:", "value:", "values_are"
# Fields of operations that take several values; a form sends one.
_LISTS = frozenset({"seqs"})


async def perform(app: App, browser: Browser, name: str, form: Mapping[str, str]) -> None:
    """Perform the operation of a form."""
    if name not in DONE:
        raise UnknownOperation(f"There is no form for '{name}'.")
    own = {FORM_TOKEN, RETURN_TO, _VALUES_ARE}
    given: dict[str, Any] = {
        field: [text] if field in _LISTS else text
        for field, text in form.items()
        if text != "" and field not in own and not field.startswith((_RESOLUTION, _VALUE))
    }
    resolutions = {
        field.removeprefix(_RESOLUTION): _resolution(choice, field.removeprefix(_RESOLUTION), form)
        for field, choice in form.items()
        if field.startswith(_RESOLUTION)
    }
    if resolutions:
        given["resolutions"] = resolutions
    await app.call(app.registry[name], given, browser.context, strict=False)


def _resolution(choice: str, key: str, form: Mapping[str, str]) -> dict[str, Any]:
    if choice not in {"ours", "theirs", "base", "value"}:
        raise InvalidInput(f"'{choice[:50]}' is not a side of a merge.", field="resolutions")
    if choice != "value":
        return {"take": choice}
    # A browser ends the lines of a form with two characters.
    text = form.get(f"{_VALUE}{key}", "").replace("\r\n", "\n")
    return {"take": choice, "value": text if form.get(_VALUES_ARE) != "json" else _parsed(text)}


def _parsed(text: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"The new value is not valid JSON: {error}", field="resolutions") from error
