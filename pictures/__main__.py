"""Takes the pictures of the documents: ``make screenshots``.

    python -m pictures                  takes all, and stores them in docs/pictures/
    python -m pictures vllm sizing      only these
    python -m pictures --check          writes nothing; says which would differ, and by how many pixels

The first engine has to come up, so the default model is needed. Two runs give the same pixels; another
machine may have other fonts, which ``--check`` says.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from playwright.async_api import async_playwright

from pictures.album import ALBUM, FOLDER, FONT_WIDTHS, THEMES, path_of
from pictures.camera import CHROMIUM, FLAGS, Shot, font_widths, take
from pictures.compare import difference, opened, store, stored

ROOT = FOLDER.parents[1]
APP = (sys.executable, "app.py", "--port", "0", "--backends", "naive,generate,paged,vllm")


@contextmanager
def running_app() -> Iterator[str]:
    """Its address. It is as if nobody had set anything."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SERVESCOPE_")}
    with subprocess.Popen(APP, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            if not said.startswith("Servescope: "):
                raise SystemExit(f"pictures: app.py did not start: {said.strip()}")
            yield said.removeprefix("Servescope: ").strip()
        finally:
            process.terminate()


async def take_all(url: str, shots: Sequence[Shot], *, check: bool) -> int:
    """Take them in both themes; how many differ from what is stored."""
    num_different = 0
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        widths = await font_widths(browser)
        if check and widths != json.loads(FONT_WIDTHS.read_text()):
            print("The fonts of this machine are others than those of the stored pictures.")
        if not check:
            FOLDER.mkdir(parents=True, exist_ok=True)
            FONT_WIDTHS.write_text(json.dumps(widths) + "\n")
        for shot in shots:
            for theme in THEMES:
                png = await take(browser, url, shot, theme)
                num_different += _compare(png, shot.name, theme, check=check)
        await browser.close()
    return num_different


def _compare(png: bytes, name: str, theme: str, *, check: bool) -> bool:
    """Say whether it differs from the stored one, and store it unless this is a check."""
    picture, path = opened(png), path_of(name, theme)
    is_new = not path.exists()
    found = None if is_new else difference(picture, stored(path))
    is_other = is_new or found is not None
    if is_other and not check:
        store(picture, path)
    result = "new" if is_new else "the same" if found is None else str(found)
    print(f"{path.relative_to(ROOT)}: {result}", flush=True)
    return is_other


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pictures", description="Take the documents' pictures.")
    names = [shot.name for shot in ALBUM]
    parser.add_argument("name", nargs="*", metavar="NAME", help=f"all, or some of: {', '.join(names)}")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if one differs")
    options = parser.parse_args()
    unknown = [name for name in options.name if name not in names]
    if unknown:
        parser.error(f"there is no picture {unknown[0]!r}; there are: {', '.join(names)}")
    shots = [shot for shot in ALBUM if not options.name or shot.name in options.name]
    with running_app() as url:
        num_different = asyncio.run(take_all(url, shots, check=options.check))
    if options.check and num_different:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
