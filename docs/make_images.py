"""Make the pictures of an explanation that the README shows: `python docs/make_images.py [MODEL]`.

Writes to docs/images: `explanation.svg` (the terminal view), `heatmap.png` (the plot), `explanation.html`; and where a
Chromium browser is installed, pictures of the HTML view in both colour schemes.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from io import StringIO
from pathlib import Path

import pellucid
from pellucid.explanation import Explanation
from pellucid.views.terminal import Lines

TEXT1 = "The bank raised its interest rates again, and home buyers are worried."
TEXT2 = "Mortgages cost more since the central bank changed its policy."
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
SCHEMES = {"light": 1, "dark": 0}  # Chromium's numbers for a preferred colour scheme


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
    explanation.plot().savefig(folder / "heatmap.png", dpi=110)
    page = folder / "explanation.html"
    page.write_text(explanation.to_html(top_k=8), encoding="utf-8")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    for scheme, number in SCHEMES.items() if browser else ():
        photograph(browser, page, folder / f"explanation-{scheme}.png", number)


def terminal_svg(explanation: Explanation) -> str:
    """Return the terminal view as SVG."""
    from rich.console import Console

    console = Console(record=True, width=96, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Lines(explanation._parts(top_k=8)))
    return console.export_svg(title="print(model.explain(text1, text2))")


def photograph(browser: str, page: Path, picture: Path, scheme: int) -> None:
    """Take a picture of `page` in one colour scheme."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1.5"]
    options += [f"--blink-settings=preferredColorScheme={scheme}", "--window-size=720,960"]
    command = [browser, *options, f"--screenshot={picture.resolve()}", page.resolve().as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


if __name__ == "__main__":
    main()
