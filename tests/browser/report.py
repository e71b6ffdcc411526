"""Tests the reports of `tollgate simulate` in a real Chromium, opened as files.

usage: report.py TOLLGATE SELENIUM SCENARIO SCREENSHOTS

Plays SCENARIO with the program TOLLGATE, once and with each algorithm, and opens both reports. SELENIUM is the folder
in which Selenium is installed. The pages are also photographed, for people, into the folder SCREENSHOTS. The last line
has the form of cargo's `test result:`.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

# The least height of a letter on a chart, in pixels, at any width of the window.
LETTER_MIN = 7

# Height of the smallest text of all charts.
LETTER = "return Math.min(...[...document.querySelectorAll('svg text')].map(e => e.getBoundingClientRect().height))"

# Elements that reach out of the window, but for what a scrolling box holds.
OUTSIDE = (
    "return [...document.querySelectorAll('h1, h2, p, table, figure, figcaption, li')]"
    "  .filter(e => !e.closest('.wide') && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.textContent);"
)


class Reports:
    """Folder with the report of a run, and that of a comparison."""

    def __init__(self, tollgate, scenario, folder):
        self.folder = pathlib.Path(folder)
        for kind, arguments in {"run": [], "comparison": ["--compare"]}.items():
            command = [tollgate, "simulate", scenario, "--report", self.folder / kind, *arguments]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.record = json.loads((self.folder / "run/report.json").read_text())

    def pages(self):
        return {"report": self.address("run/report.html"), "comparison": self.address("comparison/comparison.html")}

    def address(self, path):
        return (self.folder / path).resolve().as_uri()


def a_report_draws_its_samples(browser, reports):
    browser.open(reports.pages()["report"])
    record = reports.record
    # The fleet, the scopes and groups one by one, and the Envoys' leases and demand of the first.
    assert len(browser.all("figure .plot > svg")) == len(record["scopes"]) + 3
    for name in ["capacity", "wants", "admitted", "has"]:
        points = browser.run(
            "const line = document.querySelector(`.plot .line.${arguments[0]}`);"
            "const box = line.getBBox(); return [line.getAttribute('d').split(/[ML]/).length - 1, box.width, box.height]",
            name,
        )
        assert points[0] == len(record["samples"]) and points[1] > 800, (name, points)
    lines = browser.run("return document.querySelector('figure:last-of-type').querySelectorAll('.line.one').length")
    assert lines == len(record["envoys"]), lines
    marks = browser.texts("ol li")
    assert len(marks) == len(record["marks"]) >= 10, marks
    numbered = browser.run("return document.querySelector('figure').querySelectorAll('.event').length")
    assert numbered == len(marks), numbered


def a_report_tells_its_figures_and_laws(browser, reports):
    browser.open(reports.pages()["report"])
    figures = dict(zip(browser.texts("th"), browser.texts("td")))
    assert figures["messages"] == str(reports.record["figures"]["messages"]), figures
    assert figures["laws broken"] == "0", figures
    assert "Held in every sample" in browser.text(".good")


def a_comparison_has_a_row_and_a_chart_for_each_algorithm(browser, reports):
    browser.open(reports.pages()["comparison"])
    names = ["static", "proportional_share", "fair_share", "usage_share", "max_rate"]
    assert browser.texts("tr td:first-child") == names
    assert browser.texts("figcaption") == names
    drawn = browser.run("return [...document.querySelectorAll('.plot .line.has')].filter(e => e.getBBox().height > 0).length")
    assert drawn == len(names), drawn


def every_width_shows_all_of_it(browser, reports):
    from browser import MEDIUM, NARROW, WIDE
    from layout import CONTRAST, CONTRAST_MIN

    for name, size in {"narrow": NARROW, "medium": MEDIUM, "wide": WIDE}.items():
        for kind, address in reports.pages().items():
            browser.size(*size)
            browser.media("dark" if name == "medium" else "light")
            browser.open(address)
            assert browser.overflow() <= 0, (kind, name, browser.overflow())
            assert not (outside := browser.run(OUTSIDE)), (kind, name, outside)
            assert (letter := browser.run(LETTER)) >= LETTER_MIN, (kind, name, letter)
            contrast, text = browser.run(CONTRAST)
            assert contrast >= CONTRAST_MIN, (kind, name, text, contrast)
            browser.photograph(f"{kind}-{name}", whole=True)


TESTS = [
    a_report_draws_its_samples,
    a_report_tells_its_figures_and_laws,
    a_comparison_has_a_row_and_a_chart_for_each_algorithm,
    every_width_shows_all_of_it,
]


def main(tollgate, selenium, scenario, screenshots):
    sys.path.insert(0, selenium)
    from browser import Browser

    with tempfile.TemporaryDirectory() as folder, Browser(screenshots) as browser:
        reports = Reports(tollgate, scenario, folder)
        results = [browser.passes(test, reports) for test in TESTS]
    failed = results.count(False)
    word = "FAILED" if failed else "ok"
    print(f"test result: {word}. {results.count(True)} passed; {failed} failed; 0 ignored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
