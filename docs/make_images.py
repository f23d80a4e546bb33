"""Make the pictures of an explanation and of the explorer: `python docs/make_images.py [MODEL]`.

Writes to docs/images: `explanation.svg` (the terminal view), `explanation.html`; and where a Chromium browser and the
package playwright are installed, pictures of the HTML view in both colour schemes, and of the
explorer: compare and search, light, dark and on a phone. Beside README's picture, a text file holds its words and its
checksum: a test compares them with the search and the picture.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pellucid
from pellucid.explain import Explanation
from pellucid.explain.views.terminal import Lines

TEXT1 = "The bank raised its interest rates again, and home buyers are worried."
TEXT2 = "Mortgages cost more since the central bank changed its policy."
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SCHEMES = ("light", "dark")
EXAMPLES = Path(__file__).parents[1] / "examples"
COMPARED = f"compare?a={TEXT1.replace(' ', '+')}&b={TEXT2.replace(' ', '+')}"
EXPLORER = {  # the name of a picture: the view, the colour scheme, the width and height
    "explorer-compare-light": (COMPARED, "light", 1100, 900),
    "explorer-search-light": ("search?q=I+forgot+my+login", "light", 1000, 850),
    "explorer-search-dark": ("search?q=When+do+I+get+my+money+back", "dark", 1100, 900),
    "explorer-compare-phone": (COMPARED, "dark", 390, 844),
}


def main() -> None:
    """Explain the two texts with the model named on the command line and draw the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="static-en", help="bundled name, folder or hub id")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "images")
    arguments = parser.parse_args()
    draw(pellucid.load(arguments.model).explain(TEXT1, TEXT2), arguments.folder)


def draw(explanation: Explanation, folder: Path) -> None:
    """Write every picture of `explanation` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "explanation.svg").write_text(terminal_svg(explanation), encoding="utf-8")
    page = folder / "explanation.html"
    page.write_text(explanation.to_html(top_k=8), encoding="utf-8")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is not None:
        photograph_all(program, page, folder)


def terminal_svg(explanation: Explanation) -> str:
    """Return the terminal view as SVG."""
    from rich.console import Console

    console = Console(record=True, width=96, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Lines(explanation._parts(top_k=8)))
    return console.export_svg(title="print(model.explain(text1, text2))")


def photograph_all(program: str, page: Path, folder: Path) -> None:
    """Take the pictures of the HTML view and of the explorer with a Chromium browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver, explorer() as address:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for scheme in SCHEMES:
            picture = folder / f"explanation-{scheme}.png"
            photograph(browser, page.resolve().as_uri(), picture, (scheme, 720, 960), "body")
        for name, (view, *how) in EXPLORER.items():
            opened = "Every reason" if name == "explorer-search-light" else ""
            photograph(browser, f"{address}#{view}", folder / f"{name}.png", tuple(how), "tfoot, .hit", opened)
        browser.close()


def photograph(browser: Any, address: str, picture: Path, how: tuple[Any, ...], awaited: str, opened: str = "") -> None:
    """Take a picture of a page in a colour scheme, width and height, once an element of it is there.

    `opened` names a button that is pressed before; the text of the page then goes into a file beside the picture.
    """
    scheme, width, height = how
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height})
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector(awaited, timeout=60_000)
    if opened:
        page.get_by_role("button", name=opened).first.click()
        page.wait_for_selector("tfoot", timeout=60_000)
    page.wait_for_timeout(500)  # what is drawn after it
    page.screenshot(path=picture)
    if opened:
        checksum = hashlib.sha256(picture.read_bytes()).hexdigest()
        picture.with_suffix(".txt").write_text(f"{checksum}\n\n{page.locator('main').inner_text()}\n", encoding="utf-8")
    context.close()


@contextmanager
def explorer() -> Iterator[str]:
    """Serve the index of the README's commands, of a help centre's answers; yield the address."""
    import uvicorn

    from pellucid.server import ServerSettings, create_app

    with tempfile.TemporaryDirectory() as work, socket.create_server(("127.0.0.1", 0)) as listening:
        with pellucid.Index.create(Path(work) / "help") as index:
            index.add_files(EXAMPLES / "help_centre.txt")
        server = uvicorn.Server(uvicorn.Config(create_app(ServerSettings(index=f"{work}/help")), log_level="error"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        while not server.started:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        server.should_exit = True
        thread.join()


if __name__ == "__main__":
    main()
