"""Does the report work in a real browser, with nothing but its file?"""

import csv
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from emu.cli.main import main
from emu.run_directory.comparison import load_run, parting
from emu.views.reports.recording import read_recording
from tests.reports.test_recording import PAIR, recorded

DRIVER, BROWSER = shutil.which("chromedriver"), shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    not (DRIVER and BROWSER), reason="no browser is installed (apt install chromium chromium-driver)"
)
TRAINING: dict[str, object] = {
    "name": "steps",
    "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 1, "gpus_per_host": 2, "spines": 1},
    "run": {"sample_every": "20us"},
    "jobs": [
        {
            "name": "train",
            "workload": {
                "kind": "training",
                "model": "own",
                "own": {
                    "layers": 2,
                    "hidden": 256,
                    "heads": 4,
                    "kv_heads": 4,
                    "ffn": 512,
                    "vocab": 512,
                    "sequence": 128,
                },
                "tp": 2,
                "dp": 2,
                "steps": 3,
                "stragglers": [{"rank": 3, "slowdown": 50}],
            },
        }
    ],
}


CLICK_ON = """
const one = cells[nodes.findIndex((node) => node.name === arguments[0])], box = map.getBoundingClientRect();
const at = {clientX: box.left + one.x + 3, clientY: box.top + one.y + 3};
map.dispatchEvent(new MouseEvent("click", at));
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(DRIVER or ""))
    yield driver
    driver.quit()


def test_a_report_of_flow_level_shows_nothing_unknown_as_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flows, packets = tmp_path / "flows", tmp_path / "packets"
    few = {**PAIR, "expect": [], "faults": []}
    recorded({**few, "fidelity": "flow"}, flows)
    recorded(few, packets)
    assert main(["report", str(flows)]) == 0
    page = (flows / "report.html").read_text("utf-8")
    assert "flow level: drops, pauses, queues and packets sent again are not known, nor is anything" in page
    assert "busiest links as a table" in page
    assert "<td>unknown</td>" in page  # Of a link, the share for which it was paused.
    assert "<td>0.0%</td></tr>" not in page
    assert main(["report", str(packets), str(flows)]) == 0
    compared = (flows / "report_against_packets.html").read_text("utf-8")
    assert "not known at flow level" in compared
    for name in ("drops", "pause frames", "time paused", "peak buffer", "events", "packet-hops"):
        (cells,) = re.findall(rf"<tr><td>{name}</td>(.*?)</tr>", compared)
        assert re.findall("<td>(.*?)</td>", cells)[1] in ("", "-"), name
    for words in (
        ["export", "csv", str(flows)],
        ["export", "perfetto", str(flows), "--out", str(tmp_path / "out")],
    ):
        assert main(words) == 2
        assert "a run at flow level has no samples; accepted: one with" in capsys.readouterr().err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["flows", "packets"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("report") / "run"
    recorded(PAIR, place)
    assert main(["report", str(place)]) == 0
    return place / "report.html"


def opened(browser: webdriver.Chrome, file: Path, width: int = 1280) -> webdriver.Chrome:
    browser.set_window_size(width, 1000)
    browser.get(file.as_uri())
    WebDriverWait(browser, 30).until(
        lambda page: page.find_element(By.TAG_NAME, "body").get_attribute("data-ready")
    )
    return browser


def errors(page: webdriver.Chrome) -> list[object]:
    """What the browser logged since the last look, refusals of the content security policy among it."""
    entries = page.execute("getLog", {"type": "browser"})["value"]
    return [entry for entry in entries if entry["level"] != "INFO"]


def test_the_page_opens_on_the_interval_and_the_port_of_the_drops(
    browser: webdriver.Chrome, file: Path
) -> None:
    page = opened(browser, file)
    judged = page.find_element(By.ID, "judged").text
    assert judged.startswith("DONE pair: no expectations; cause: link_down at rtsw-1:ctsw-0, ")
    assert page.find_element(By.ID, "chosen-name").text == "ctsw-0 → rtsw-1 (down)"
    assert page.find_element(By.ID, "when").text == "100 us to 110 us"
    chosen = page.find_element(By.CSS_SELECTOR, "#chosen-ports tr.chosen").text.split()
    assert int(chosen[-1]) > 50
    assert "down from 100us to 150us" in page.find_element(By.CLASS_NAME, "found").text


def test_the_slider_moves_the_time_by_keys_and_the_figures_with_it(
    browser: webdriver.Chrome, file: Path
) -> None:
    page = opened(browser, file)
    slider = page.find_element(By.ID, "slider")
    for _ in range(10):
        slider.send_keys(Keys.ARROW_LEFT)
    assert page.find_element(By.ID, "when").text == "0 to 10 us"
    slider.send_keys(Keys.ARROW_RIGHT)
    chosen = page.find_element(By.CSS_SELECTOR, "#chosen-ports tr.chosen").text.split()
    assert chosen[-4:] == ["%", "0", "B", "0"]  # paused 0 %, queue 0 B, drops 0
    assert float(chosen[5]) == 100  # of its rate


def test_a_click_on_a_device_and_its_name_in_the_search_choose_it(
    browser: webdriver.Chrome, file: Path
) -> None:
    page = opened(browser, file)
    page.find_element(By.ID, "find").send_keys("nic-0-0", Keys.ENTER)
    assert page.find_element(By.ID, "chosen-name").text == "nic-0-0 → rtsw-0"
    page.execute_script(CLICK_ON, "rtsw-0")
    assert page.find_element(By.ID, "chosen-name").text.startswith("rtsw-0 → ")
    page.find_element(By.ID, "map").send_keys(Keys.ARROW_DOWN)
    assert page.find_element(By.ID, "chosen-name").text.startswith("nic-")


def middle(page: webdriver.Chrome, holder: str, x: int, y: int) -> ActionChains:
    """The pointer at a place of a panel, counted from its upper left corner."""
    element = page.find_element(By.ID, holder)
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    size = element.size
    return ActionChains(page, duration=0).move_to_element_with_offset(
        element, x - size["width"] // 2, y - size["height"] // 2
    )


def seen(page: webdriver.Chrome) -> list[float]:
    """The stretch that is shown, in us, once it is drawn."""
    until_drawn = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
    page.execute_async_script(until_drawn)
    return [ps / 1e6 for ps in page.execute_script("return seen.map(timeAt)")]


def test_wheel_drag_and_keys_zoom_and_pan_every_panel_at_once(browser: webdriver.Chrome, file: Path) -> None:
    page = opened(browser, file)
    whole = seen(page)
    width = page.execute_script("return by('timeline').clientWidth")
    place = "return across(arguments[0] * 1e6, arguments[1])"
    at_100, at_200 = (round(page.execute_script(place, us, width)) for us in (100, 200))
    middle(page, "waterfall", at_100, 20).click_and_hold().move_by_offset(
        at_200 - at_100, 0
    ).release().perform()
    assert seen(page) == pytest.approx([100, 200], abs=2)
    ticks = page.find_elements(By.CSS_SELECTOR, "#timeline text, #series text")
    assert {"120 us", "180 us"} <= {one.text for one in ticks}
    middle(page, "series", 600, 60).key_down(Keys.SHIFT).click_and_hold().move_by_offset(-100, 0).perform()
    ActionChains(page).release().key_up(Keys.SHIFT).perform()
    later = seen(page)
    assert later[0] > 105
    assert later[1] - later[0] == pytest.approx(100, abs=4)
    page.find_element(By.ID, "timeline").send_keys("0")
    assert seen(page) == whole
    element = page.find_element(By.ID, "timeline")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    ActionChains(page).scroll_from_origin(ScrollOrigin.from_element(element), 0, -100).perform()
    near = seen(page)
    assert near[1] - near[0] == pytest.approx(0.8 * (whole[1] - whole[0]), rel=0.01)
    element.send_keys("-", "-")
    assert seen(page) == whole
    element.send_keys("+")
    assert seen(page)[1] - seen(page)[0] == pytest.approx(0.5 * (whole[1] - whole[0]), rel=0.01)
    page.find_element(By.ID, "whole").click()
    assert seen(page) == whole
    assert errors(page) == []


def test_the_crosshair_is_at_one_time_in_every_panel_and_says_what_is_there(
    browser: webdriver.Chrome, file: Path
) -> None:
    page = opened(browser, file)
    lines = "return panels.map((one) => [one.cross.hidden, one.cross.style.left, one.holder.id])"
    x = round(page.execute_script("return across(105e6, by('timeline').clientWidth)"))
    for holder, words in (("timeline", "flow"), ("series", "drops "), ("waterfall", "utilisation ")):
        middle(page, holder, x, 13).perform()
        (first, *others) = page.execute_script(lines)
        assert first[0] is False
        assert {one[1] for one in others} == {first[1]}
        said = page.find_element(By.ID, "tip").text
        assert holder == "timeline" or words in said
        assert " us" in said
    middle(page, "waterfall", x, 2).click().perform()
    assert page.find_element(By.ID, "when").text == "100 us to 110 us"
    assert page.find_element(By.ID, "chosen-name").text.startswith("ctsw-0 → ")


def test_findings_and_bars_lead_to_what_they_are_about(browser: webdriver.Chrome, file: Path) -> None:
    page = opened(browser, file)
    acts: tuple[Callable[[], object], ...] = (
        lambda: page.find_element(By.CSS_SELECTOR, "a.lead").click(),
        lambda: page.find_element(By.CSS_SELECTOR, ".bar.fault").send_keys(Keys.ENTER),
        lambda: page.find_element(By.CSS_SELECTOR, ".bar.found").send_keys(Keys.ENTER),
        lambda: (
            ActionChains(page)
            .move_to_element(page.find_element(By.CSS_SELECTOR, ".bar.fault"))
            .click()
            .perform()
        ),
    )
    for act in acts:
        page.find_element(By.ID, "find").clear()
        page.find_element(By.ID, "find").send_keys("nic-0-0", Keys.ENTER)
        page.find_element(By.ID, "slider").send_keys(Keys.HOME)
        assert page.find_element(By.ID, "chosen-name").text == "nic-0-0 → rtsw-0"
        page.execute_script("scrollTo(0, 0)")
        act()
        assert "(down)" in page.find_element(By.ID, "chosen-name").text
        assert page.find_element(By.ID, "when").text == "100 us to 110 us"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("rtsw-1:ctsw-0", {"rtsw-1 → ctsw-0", "ctsw-0 → rtsw-1"}),
        ("rtsw-1>ctsw-0", {"rtsw-1 → ctsw-0"}),
        ("rtsw-1 → ctsw-0", {"rtsw-1 → ctsw-0"}),
        ("gpu-2-0", {"nic-2-0 → rtsw-1"}),
        ("host-3", {"nic-3-0 → rtsw-1"}),
        ("rank 1", {"nic-1-0 → rtsw-0"}),
        ("rank 2 of two", {"nic-2-0 → rtsw-1"}),
        ("two", {f"nic-{at}-0 → rtsw-{at // 2}" for at in range(4)}),
        ("nowhere", set()),
        ("rank 99", set()),
    ],
)
def test_the_search_finds_links_gpus_hosts_ranks_and_jobs_or_says_that_there_is_none(
    browser: webdriver.Chrome, file: Path, words: str, name: set[str]
) -> None:
    page = browser if browser.current_url == file.as_uri() else opened(browser, file)
    page.find_element(By.ID, "find").clear()
    before = page.find_element(By.ID, "chosen-name").text
    page.find_element(By.ID, "find").send_keys(words, Keys.ENTER)
    said = page.find_element(By.ID, "found").text
    assert page.find_element(By.ID, "chosen-name").text.partition(" (")[0] in (
        name or {before.partition(" (")[0]}
    )
    assert said.startswith(f"nothing here is called {words}: try ") == (not name)
    if words == "gpu-2-0":
        assert "host-2, gpu-2-0, rank 2 of two" in page.find_element(By.ID, "chosen-who").text


def test_a_line_of_the_picture_shows_the_greatest_of_its_ports_and_idle_time_is_folded(
    browser: webdriver.Chrome, tmp_path: Path
) -> None:
    """More ports than lines, and microseconds of traffic, seconds apart."""
    flows = [{"src": 8 * at + 8, "dst": 0, "size": "64KiB"} for at in range(8)]
    scenario: dict[str, object] = {
        "name": "many",
        "topology": {"kind": "ai_zone", "racks": 12, "hosts_per_rack": 2, "gpus_per_host": 8, "spines": 4},
        "run": {"sample_every": "1us"},
        "switch": {"pfc": {"enabled": False}, "buffer": {"pool": "1MB", "alpha": "1/64"}},
        "transport": {"timeout": 5},
        "jobs": [
            {"name": "early", "workload": {"kind": "flows", "flows": flows[:1]}},
            {"name": "late", "start": "4s", "workload": {"kind": "flows", "flows": flows}},
        ],
    }
    recorded(scenario, tmp_path / "run")
    assert main(["report", str(tmp_path / "run")]) == 0
    page = opened(browser, tmp_path / "run" / "report.html")
    page.execute_script("document.querySelectorAll('input[name=measure]')[3].click()")
    assert page.execute_script("return waterRows.length") > 420
    most, drawn = page.execute_script(
        "const all = frames[0][3].map((row) => Math.max(...row));"
        "const {figures, count: found} = lineFigures(rowsHeight());"
        "const column = (when) => Array.from({length: found}, (_, line) => figures[line * count + when]);"
        "return [all, all.map((_, when) => Math.max(...column(when)))]"
    )
    assert max(most) > 0
    assert drawn == most
    dropped = most.index(max(most))
    coloured = page.execute_script(
        "const canvas = document.querySelector('#waterfall canvas'), wide = canvas.clientWidth;"
        "const scale = canvas.width / wide, copy = new OffscreenCanvas(canvas.width, canvas.height);"
        "const pen = copy.getContext('2d', {willReadFrequently: true}); pen.drawImage(canvas, 0, 0);"
        "const x = across((edges[arguments[0]] + edges[arguments[0] + 1]) / 2, wide) * scale;"
        "const empty = pen.getImageData(gutter() * scale + 1, 2, 1, 1).data.join();"
        "const column = pen.getImageData(x, 0, 1, rowsHeight() * scale).data; let found = 0;"
        "for (let at = 0; at < column.length; at += 4) found += column.slice(at, at + 4).join() !== empty;"
        "return found",
        dropped,
    )
    assert coloured >= 1
    busy = "return (placeOf(edges[count]) - placeOf(4e12)) / (seen[1] - seen[0])"
    assert page.execute_script(busy) > 0.3  # Of 4 s, what happens in some microseconds can be read.
    page.find_element(By.ID, "fold").click()
    assert page.execute_script(busy) < 0.001
    assert errors(page) == []


def test_nothing_is_fetched_and_no_error_is_logged(browser: webdriver.Chrome, file: Path) -> None:
    page = opened(browser, file)
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert errors(page) == []
    refused = "return fetch('data.json').then(() => 'fetched', () => 'refused')"
    assert page.execute_script(refused) == "refused"
    assert errors(page) != []


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("steps") / "run"
    recorded(TRAINING, place)
    assert main(["report", str(place)]) == 0
    return place / "report.html"


@pytest.mark.parametrize("name", ["pair", "steps", "two"])
def test_the_page_needs_no_sideways_scrolling_at_400_pixels(
    browser: webdriver.Chrome, file: Path, steps: Path, tmp_path: Path, name: str
) -> None:
    shown = {"pair": file, "steps": steps, "two": tmp_path / "two.html"}[name]
    if name == "two":
        assert main(["report", str(file.parent), str(steps.parent), "--out", str(shown)]) == 0
    narrow = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
    try:
        page = opened(browser, shown)
        wide = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        scrolled, inside = page.execute_script(wide)
        assert scrolled == inside <= 400
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_training_job_shows_its_step_as_a_bar_and_a_rank_leads_to_its_nic(
    browser: webdriver.Chrome, steps: Path
) -> None:
    page = opened(browser, steps)
    parts = page.find_elements(By.CSS_SELECTOR, "svg.step rect")
    shares = [float(str(part.get_attribute("width")).rstrip("%")) for part in parts]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    said = page.find_element(By.TAG_NAME, "body").text
    for words in ("MFU ", " tokens a second", "other, of the step: ", "exposed dp "):
        assert words in said
    canvas = page.find_element(By.ID, "steps-0")
    assert page.find_element(By.ID, "rank-name-0").text.startswith("Rank 3 (gpu-1-1 ")  # Whom it accuses.
    canvas.send_keys(Keys.ARROW_UP, Keys.ARROW_RIGHT)
    assert page.find_element(By.ID, "rank-name-0").text.startswith(
        "Rank 2 (gpu-1-0 on host-1, nic-1-0), step 1: "
    )
    assert page.find_element(By.ID, "chosen-name").text.startswith("nic-1-0 → ")
    begins = page.execute_script("return rowOf(data.steps[0], 2)[2] / 1e6")
    when = page.find_element(By.ID, "when").text.split(" ")
    assert float(when[0]) <= begins
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    ActionChains(page).move_to_element(canvas).perform()
    assert page.find_element(By.ID, "tip").text.startswith("rank ")
    middle(page, "steps-0", 70, 5).click().perform()
    assert page.find_element(By.ID, "rank-name-0").text.startswith(
        "Rank 0 (gpu-0-0 on host-0, nic-0-0), step 0"
    )


def test_the_steps_name_who_computes_longest_among_those_who_wait(
    browser: webdriver.Chrome, steps: Path
) -> None:
    page = opened(browser, steps)
    page.execute_script("stepPick = {rank: 2, step: 1}; drawSteps()")
    marked = page.find_elements(By.CSS_SELECTOR, "#rank-0 tr.chosen")
    assert [row.text.split()[:2] for row in marked] == [["tp", "3"]]
    rows = [row.text.split() for row in page.find_elements(By.CSS_SELECTOR, "#rank-0 tr")][1:]
    assert [row[:2] for row in rows] == [["itself", "2"], ["tp", "3"], ["dp", "0"]]
    for rank in range(4):  # Whoever waits, and for whom: at the end stands the one that was slowed down.
        page.execute_script(f"stepPick = {{rank: {rank}, step: 1}}; drawSteps()")
        chain = [one.text for one in page.find_elements(By.CSS_SELECTOR, "#chain-0 li")]
        assert chain[0].startswith(f"rank {rank} ")
        assert chain[-1].startswith("rank 3 waits for nobody longer")
        assert ", its peers " in chain[-1]
        assert page.find_element(By.CSS_SELECTOR, "#chain-0 .slow").text == chain[-1]
        assert len(chain) == 1 + (rank != 3) + (rank == 0)  # Rank 0 shares no group with it.


def test_a_stage_that_has_more_to_compute_is_not_slow(browser: webdriver.Chrome, tmp_path: Path) -> None:
    """The last stage has the logits: it computes longer than the others, and no longer than its like."""
    (job,) = cast("list[dict[str, Any]]", TRAINING["jobs"])
    model = job["workload"]["own"] | {"vocab": 65536}
    workload = job["workload"] | {"own": model, "tp": 1, "pp": 2, "stragglers": []}
    recorded({**TRAINING, "jobs": [job | {"workload": workload}]}, tmp_path / "run")
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "steps.html")]) == 0
    page = opened(browser, tmp_path / "steps.html")
    computing = "return data.steps[0].rows.filter((row) => row[1] === 1).map((row) => row[4])"
    first, *_, last = page.execute_script(computing)
    assert last > 1.5 * first
    for rank in range(4):
        page.execute_script(f"stepPick = {{rank: {rank}, step: 1}}; drawSteps()")
        chain = page.find_elements(By.CSS_SELECTOR, "#chain-0 li")
        assert chain[-1].text.endswith("no longer than its peers")
        assert page.find_elements(By.CSS_SELECTOR, "#chain-0 .slow") == []


def test_two_runs_open_where_they_part_and_show_both(
    browser: webdriver.Chrome, file: Path, tmp_path: Path
) -> None:
    recorded({**PAIR, "faults": []}, tmp_path / "whole")
    assert (
        main(["report", str(file.parent), str(tmp_path / "whole"), "--out", str(tmp_path / "two.html")]) == 0
    )
    found = parting(load_run(file.parent), load_run(tmp_path / "whole"))
    assert found is not None
    assert found.device is not None
    page = opened(browser, tmp_path / "two.html")
    assert page.find_element(By.ID, "chosen-name").text.startswith(found.device)
    assert page.find_element(By.ID, "when").text == "100 us to 110 us"
    page.execute_script(
        "choose({node: ports[arguments[0]][0], port: arguments[0]})",
        page.execute_script("return ports.findIndex((_, port) => portName(port) === 'ctsw-0 → rtsw-1')"),
    )
    cells = page.find_elements(By.CSS_SELECTOR, "#chosen-ports tr.chosen td")
    lost, none = cells[-1].text.split(" → ")
    assert int(lost) > 50
    assert none == "0"
    words = page.find_element(By.TAG_NAME, "body").text
    assert "down from 100us to 150us" in words
    assert "the diagnosis found nothing" in words
    assert errors(page) == []


def test_links_that_differ_only_since_a_run_is_longer_are_left_out(steps: Path, tmp_path: Path) -> None:
    (job,) = cast("list[dict[str, Any]]", TRAINING["jobs"])
    even = job | {"workload": job["workload"] | {"stragglers": []}}
    sooner = recorded({**TRAINING, "jobs": [even]}, tmp_path / "even").summary.fabric.links
    assert (
        main(["report", str(tmp_path / "even"), str(steps.parent), "--out", str(tmp_path / "two.html")]) == 0
    )
    page = (tmp_path / "two.html").read_text("utf-8")
    assert re.search(r"<b>B (ends [0-9.]+% later|takes [0-9.]+ times as long)", page)
    later = read_recording(steps.parent).summary.fabric.links
    assert any(a.utilisation != b.utilisation for a, b in zip(sooner, later, strict=True))
    assert f"All {len(later)} links carried the same." in page


def test_a_run_against_itself_is_the_same(browser: webdriver.Chrome, file: Path, tmp_path: Path) -> None:
    assert main(["report", str(file.parent), str(file.parent), "--out", str(tmp_path / "two.html")]) == 0
    page = opened(browser, tmp_path / "two.html")
    words = page.find_element(By.TAG_NAME, "body").text
    assert "same answer" in words
    assert "links carried the same" in words
    assert page.execute_script(
        "return frames[0][0].every((row, at) => String(row) === String(frames[1][0][at]))"
    )


def test_a_sweep_shows_every_seed_and_the_median_between(browser: webdriver.Chrome, tmp_path: Path) -> None:
    scenario = tmp_path / "pair.yaml"
    scenario.write_text(yaml.safe_dump({**PAIR, "faults": []}))
    axis = "switch.buffer.alpha=1/128,1/64"
    words = ["sweep", str(scenario), "--local", "--quiet", "--set", axis, "--seeds", "3"]
    shows = ["--show", "fabric.pfc_paused_ps", "--show", "jobs.two.flows[0].ideal_ps"]
    assert main([*words, *shows, "--out", str(tmp_path / "out")]) == 0
    assert main(["report", str(tmp_path / "out")]) == 0
    with (tmp_path / "out" / "sweep.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    paused = [
        sorted(float(row["fabric.pfc_paused_ps"]) for row in rows if row["switch.buffer.alpha"] == alpha)
        for alpha in ("1/128", "1/64")
    ]
    page = opened(browser, tmp_path / "out" / "report.html")
    (chart,) = page.execute_script("return data.charts")
    assert [point[1:] for point in chart["lines"][0]["points"]] == [[one[1], one] for one in paused]
    assert [point[0] for point in chart["lines"][0]["points"]] == [1 / 128, 1 / 64]
    assert len(page.find_elements(By.CSS_SELECTOR, "#chart-0 circle")) == 2 + 6
    seen = page.find_element(By.TAG_NAME, "body").text
    assert re.search(r"flows\[0\]\.ideal_ps: [0-9.]+us in every run", seen)
    assert errors(page) == []
