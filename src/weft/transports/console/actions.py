"""Forms: each sends the fields of one operation, and returns to the page it was sent from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.kernel.errors import InvalidInput, UnknownOperation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.app.app import App
    from weft.transports.console.sign_in import Browser

# Operations that pages have forms for, and what is said once each was performed.
DONE = {
    "alerts.acknowledge": "The alert is acknowledged.",
    "alerts.resolve": "The alert is resolved.",
    "approval.approve": "The call was approved and performed.",
    "approval.refuse": "The call was refused.",
    "history.close_review": "The review is closed; nothing was merged.",
    "history.resolve": "The merge is decided.",
    "history.rollback": "The context was rolled back; the rollback is a new version.",
    "knowledge.discard_document": "The held version was discarded.",
    "knowledge.release_document": "The document was released and is being indexed.",
    "webhook.replay": "The deliveries are sent again.",
}
# What forms send besides the fields of the operation.
FORM_TOKEN, RETURN_TO = "form_token", "return_to"
_RESOLUTION = "resolution:"


async def perform(app: App, browser: Browser, name: str, form: Mapping[str, str]) -> None:
    """Perform the operation of a form."""
    if name not in DONE:
        raise UnknownOperation(f"There is no form for '{name}'.")
    given: dict[str, Any] = {
        field: text for field, text in form.items() if text != "" and field not in {FORM_TOKEN, RETURN_TO}
    }
    resolutions = {
        field.removeprefix(_RESOLUTION): _resolution(given.pop(field))
        for field in list(given)
        if field.startswith(_RESOLUTION)
    }
    if resolutions:
        given["resolutions"] = resolutions
    await app.call(app.registry[name], given, browser.context, strict=False)


def _resolution(choice: str) -> dict[str, Any]:
    if choice not in {"ours", "theirs", "base"}:
        raise InvalidInput(f"'{choice[:50]}' is not a side of a merge.", field="resolutions")
    return {"take": choice}
