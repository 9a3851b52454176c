"""Detection measured on generated values in many surroundings, next to hashes, ids, code and images."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import string
import uuid
from collections import Counter

import pytest

from support.processor_time import at_most
from weftline.safety.redaction import Masker

pytestmark = [pytest.mark.req("AC-11"), pytest.mark.req("SC-20")]

LETTERS = string.ascii_letters + string.digits
SENTENCES = (
    "Please use {} for the deployment.",
    "see: {}",
    "{}",
    "- {} (old)",
    'config = {{"value": "{}"}}',
    "Log of the run:\n{}\nend",
    "(`{}`)",
)
EACH = 40


class Values:
    """Draws values with valid check digits."""

    def __init__(self, random_seed: int) -> None:
        self.random = random.Random(random_seed)

    def text(self, alphabet: str, length: int) -> str:
        """Return random characters with a lower-case letter, a capital and a digit where the alphabet has them."""
        while True:
            drawn = "".join(self.random.choices(alphabet, k=length))
            if length < 16 or not set(LETTERS) <= set(alphabet) or (any(map(str.isdigit, drawn))):
                return drawn

    def card(self) -> str:
        digits = "4" + self.text(string.digits, 14)
        doubled = [sum(divmod(int(d) * 2, 10)) if place % 2 == 0 else int(d) for place, d in enumerate(digits[::-1])]
        number = digits + str(-sum(doubled) % 10)
        return (
            number if self.random.random() < 0.5 else " ".join(number[place : place + 4] for place in range(0, 16, 4))
        )

    def iban(self) -> str:
        account = self.text(string.digits, 18)
        return f"DE{98 - int(account + '131400') % 97:02}{account}"

    def jwt(self) -> str:
        parts = [json.dumps({"alg": "HS256", "typ": "JWT"}), json.dumps({"sub": self.text(LETTERS, 12)})]
        encoded = [base64.urlsafe_b64encode(part.encode()).rstrip(b"=").decode() for part in parts]
        return ".".join([*encoded, self.text(LETTERS, 43)])

    def spanish_id(self) -> str:
        number = self.text(string.digits, 8)
        return number + "TRWAGMYFPDXBNJZSQVHLCKE"[int(number) % 23]

    def of(self, kind: str) -> str:
        drawn = {
            "jwt": self.jwt,
            "card": self.card,
            "iban": self.iban,
            "national id": self.spanish_id,
            "aws key": lambda: "AKIA" + self.text(string.ascii_uppercase + "234567", 16),
            "github token": lambda: "ghp_" + self.text(LETTERS, 36),
            "google key": lambda: "AIza" + self.text(LETTERS + "_-", 34) + self.text(LETTERS, 1),
            "slack token": lambda: f"xoxb-{self.text(string.digits, 12)}-{self.text(LETTERS, 24)}",
            "stripe key": lambda: "sk_live_" + self.text(LETTERS, 24),
            "model key": lambda: self.random.choice(["sk-proj-", "sk-ant-api03-", "sk-"]) + self.text(LETTERS, 40),
            "npm token": lambda: "npm_" + self.text(LETTERS, 36),
            "email": lambda: f"{self.text(string.ascii_lowercase, 7)}@{self.text(string.ascii_lowercase, 6)}.org",
        }
        return drawn[kind]()


KINDS = (
    "jwt",
    "card",
    "iban",
    "national id",
    "aws key",
    "github token",
    "google key",
    "slack token",
    "stripe key",
    "model key",
    "npm token",
    "email",
)
LABELLED = ("api_key: {}", "SECRET_KEY={}", '"token": "{}"', "the access token is {}", "export API_KEY='{}'")


def harmless(values: Values) -> list[str]:
    """Return what looks random and is no secret, in its usual surroundings."""
    noise = values.random.randbytes(600)
    return [
        f"commit {hashlib.sha1(noise).hexdigest()}",
        f"sha256:{hashlib.sha256(noise).hexdigest()}",
        f"etag: {hashlib.md5(noise).hexdigest()}",
        f"request_id={uuid.UUID(bytes=noise[:16], version=4)}",
        f"merge {hashlib.sha1(noise).hexdigest()[:8]} into main",
        f"data:image/png;base64,{base64.b64encode(noise).decode()}",
        f"integrity sha512-{base64.b64encode(noise[:64]).decode()}",
        f"the key of the item is {hashlib.sha256(noise).hexdigest()}",
        f"next_page_token: {base64.b64encode(noise[:24]).decode()}",
        f"took {values.random.random():.12f} s, {values.random.randrange(10**12)} ns",
        f"order {values.text(string.digits, 12)}, batch {values.text(string.digits, 8)}-{values.text('ABC', 3)}",
        f"version 1.{values.random.randrange(99)}.7rc1, build {values.random.randrange(10**6)}",
        "self._token = token or settings.default_token_provider()",
        "password: str = field(default_factory=generate_password)",
        f"2026-11-16T15:{values.random.randrange(60):02}:07.{values.random.randrange(10**6):06}Z session started",
        f"color: #{noise[:3].hex()}; width: {values.random.randrange(999)}px",
    ]


def test_generated_values_are_found_and_nothing_else_is() -> None:
    values, found = Values(1), Counter[str]()
    for _ in range(EACH):
        for kind in KINDS:
            value = values.of(kind)
            masked = Masker().text(values.random.choice(SENTENCES).format(value))
            found["right" if f"[{kind} 1]" in masked and value not in masked else f"missed {kind}"] += 1
        value = values.text(LETTERS, 32)
        masked = Masker().text(values.random.choice(LABELLED).format(value))
        found["right" if value not in masked else "missed secret"] += 1
        found["wrong"] += sum(sum(_found(text).values()) for text in harmless(values))
    expected = EACH * (len(KINDS) + 1)
    assert found["right"] / expected >= 0.99, found
    assert found["right"] / (found["right"] + found["wrong"]) >= 0.99, found


def _found(text: str) -> Counter[str]:
    masker = Masker()
    masker.text(text)
    return masker.found


def test_detection_is_cheap() -> None:
    """Well below a millisecond per KiB, also on a busy machine."""
    text = "The quarterly report is late; Anna Berg asks for version 2.4 of the budget (see section 3.1). " * 100
    with at_most(10 * 1e-3 * len(text) / 1024):
        for _ in range(10):
            Masker().text(text)
