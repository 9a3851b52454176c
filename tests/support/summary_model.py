"""Answers of a model that summarises: faithful ones, and wrong in every way. They read the request that they answer."""

from __future__ import annotations

import json
import re
from typing import Any

from support.scripted_provider import Answer
from weftline.state.layers.prefix import contents

_ELEMENT = re.compile(r"<weftline:data.*?</weftline:data>", re.DOTALL)
_LINE = re.compile(r"^[^:\n]{1,40}: ", re.MULTILINE)


def request_text(body: dict[str, Any]) -> str:
    """Return the text of the last message of a request, in either wire form."""
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


def conversation(body: dict[str, Any]) -> str:
    """Return the conversation that a request is about."""
    return _elements(body)[0]


def key_facts(body: dict[str, Any]) -> list[str]:
    """Return what a request says must not be lost."""
    elements = _elements(body)
    return [line.removeprefix("- ") for line in elements[1].splitlines()] if len(elements) > 1 else []


def faithful(body: dict[str, Any]) -> Answer:
    """Summarise by the first sentence of each message, and repeat the key facts."""
    return as_json(_prose(body), key_facts(body))


def as_json(summary: object, facts: object = ()) -> Answer:
    return Answer(json.dumps({"summary": summary, "facts": facts}))


def dropping(body: dict[str, Any]) -> Answer:
    """Leave out every fact."""
    del body
    return as_json("Nothing much was said.", [])


def inventing_number(body: dict[str, Any]) -> Answer:
    return as_json(_prose(body) + " The monthly budget is 48,250 EUR.", key_facts(body))


def inventing_name(body: dict[str, Any]) -> Answer:
    return as_json(_prose(body) + " This was approved by Margarethe yesterday.", key_facts(body))


def inventing_fact(body: dict[str, Any]) -> Answer:
    return as_json(
        _prose(body) + " Marketing hired freelance photographers for an autumn brochure campaign.",
        key_facts(body),
    )


def inventing_statement(body: dict[str, Any]) -> Answer:
    """Invent a statement in the list of facts, where it is not checked as prose."""
    return as_json(_prose(body), [*key_facts(body), "We decided to delete the production database tonight."])


def _elements(body: dict[str, Any]) -> list[str]:
    found = [contents(element) for element in _ELEMENT.findall(request_text(body))]
    return [text for texts in found if texts is not None for text in texts]


def _prose(body: dict[str, Any]) -> str:
    lines = [_LINE.sub("", line, count=1) for line in conversation(body).splitlines()]
    return " ".join(re.split(r"(?<=[.!?])\s", line)[0] for line in lines if line.strip())[:1_500]
