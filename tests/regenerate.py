"""Write again every file that is made from the code: texts, tables of the pages, schema, dashboard, traces.

    make golden
    python -m tests.regenerate --no-tutorials    without the tables of tutorials: they take minutes

What changed is then read in the diff before it is committed. A file in a merge conflict is made anew as well.
"""

import argparse
import json
import sys
from pathlib import Path

import emu
from emu.results import metrics, summary
from emu.scenario.dump import to_yaml
from emu.scenario.reference import markdown_pages, markdown_tables
from emu.views import dashboard
from tests.cli import python_reference
from tests.scenario.scenarios import (
    EVERYTHING_WRONG,
    GOLDEN,
    PAGES_OF_KEYS,
    before_tables,
    mark_of,
    refusals,
    scenario,
)
from tests.tidy import map_of_modules, sizes_of_wings
from tests.tutorials import pages
from tests.workload import chakra_files

ROOT = Path(__file__).resolve().parent.parent


def rewritten(path: Path, text: str) -> None:
    """Write `text`, and say so if that changed the file."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"written: {path.relative_to(ROOT)}\n")


def keys_page(text: str, name: str) -> str:
    """The page with the tables after its mark made anew."""
    subject, model = PAGES_OF_KEYS[name]
    mark = mark_of(subject)
    return text.partition(mark)[0] + mark + "\n" + markdown_tables(model)


def metrics_page(text: str) -> str:
    """The page with its two tables made anew: from the head of each to the next empty line."""
    for table in (dashboard.markdown(), metrics.markdown()):
        before, _, rest = text.partition(table.splitlines()[0] + "\n")
        _, gap, after = rest.partition("\n\n")
        text = before + table.rstrip("\n") + (gap + after or "\n")
    return text


def main() -> None:
    """Write all of them."""
    parser = argparse.ArgumentParser(prog="tests.regenerate", description=__doc__.partition("\n")[0])
    parser.add_argument("--no-tutorials", action="store_true", help="without the tables of tutorials")
    tutorials = not parser.parse_args().no_tutorials
    rewritten(GOLDEN / "small_effective.yaml", to_yaml(scenario()))
    wrong = (GOLDEN / "everything_wrong.yaml").read_text(encoding="utf-8")
    rewritten(GOLDEN / "everything_wrong.txt", "\n".join(refusals(wrong, *EVERYTHING_WRONG)) + "\n")
    for name, text in markdown_pages().items():
        page = ROOT / f"docs/{name}.md"
        rewritten(page, before_tables(page) + text)
    for name in PAGES_OF_KEYS:
        rewritten(ROOT / name, keys_page((ROOT / name).read_text(encoding="utf-8"), name))
    rewritten(ROOT / "docs/metrics.md", metrics_page((ROOT / "docs/metrics.md").read_text(encoding="utf-8")))
    rewritten(python_reference.PAGE, python_reference.page())
    for page in pages.PAGES.values() if tutorials else ():
        rewritten(page, pages.executed(page.read_text(encoding="utf-8"), large=emu.is_compiled())[0])
    rewritten(ROOT / map_of_modules.PAGE, map_of_modules.page())
    design = ROOT / sizes_of_wings.PAGE
    rewritten(design, sizes_of_wings.page(design.read_text("utf-8")))
    rewritten(ROOT / "docs/summary.schema.json", json.dumps(summary.json_schema(), indent=2) + "\n")
    rewritten(ROOT / "deploy/grafana/emu.json", dashboard.text())
    for rank in range(4):
        (ROOT / f"scenarios/workloads/chakra.{rank}.et").write_bytes(chakra_files.shown(rank))


if __name__ == "__main__":
    main()
