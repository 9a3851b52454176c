"""Writes a picture of every page of the console, in two widths and two themes, for a person to look at.

``make screenshots`` runs it; the tests do not.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.browsers import DESKTOP, PHONE
from weftline.transports.console.pages import PAGES

if TYPE_CHECKING:
    from support.browsers import Console

FOLDER = Path(__file__).parents[2] / ".results" / "console"


@pytest.fixture(scope="session", autouse=True)
def _empty_folder() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["1280", "390"])
async def test_pictures_are_written(console: Console, size: dict[str, int], theme: str) -> None:
    async with console.opened(viewport=size, color_scheme=theme) as page:
        for each in PAGES:
            await page.goto(console.planted.address(each.path))
            name = re.sub(r"\W+", "_", each.path).strip("_") or "overview"
            await page.screenshot(path=FOLDER / f"{name}-{size['width']}-{theme}.png", full_page=True)
    async with console.anonymous(color_scheme=theme) as page:
        await page.set_viewport_size(size)
        await page.goto("/console/sign-in")
        await page.screenshot(path=FOLDER / f"sign_in-{size['width']}-{theme}.png")
