"""Make the pictures of the pages again: screenshots of what `emu` writes, by a browser without a window.

    make pictures

They differ with the browser's version and fonts, so no test compares them.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from emu.cli.main import main as emu

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "report.png"
SIZE = "1280,1010"


def main() -> None:
    """Run the quickstart, write its report, and take its picture."""
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        words = ["run", "quickstart", "--local", "--quiet"]
        assert emu([*words, "--out", str(run)]) == 0
        assert emu(["report", str(run)]) == 0
        browser = [
            "chromium",
            "--headless=new",
            "--no-sandbox",
            "--hide-scrollbars",
            "--virtual-time-budget=5000",
        ]
        shot = [
            f"--window-size={SIZE}",
            f"--screenshot={PICTURE}",
            (run / "report.html").as_uri(),
        ]
        subprocess.run([*browser, *shot], check=True, capture_output=True)
        with Image.open(PICTURE) as taken:
            taken.quantize(64).save(PICTURE, optimize=True)
    sys.stdout.write("written: docs/report.png\n")


if __name__ == "__main__":
    main()
