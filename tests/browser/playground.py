"""Tests the playground's page in a real Chromium, opened as a file.

usage: playground.py SELENIUM PAGE SCREENSHOTS

SELENIUM is the folder in which Selenium is installed, PAGE the file that `just playground` makes. The page is also
photographed, for people, into the folder SCREENSHOTS. The last line has the form of cargo's `test result:`.
"""

import pathlib
import sys

sys.dont_write_bytecode = True


def open_page(browser, address, hash=""):
    browser.open("about:blank")
    browser.open(address + hash)
    browser.until(lambda: browser.run("return document.body.dataset.ready"), "it is ready")


def number(browser, id):
    return float(browser.text(f"#{id}"))


def drag(browser, selector, value):
    """Moves a slider as a person does, with its event."""
    script = (
        "const slider = document.querySelector(arguments[0]);"
        "slider.value = arguments[1]; slider.dispatchEvent(new Event('input'))"
    )
    browser.run(script, selector, value)


def choose(browser, selector, value):
    script = (
        "const select = document.querySelector(arguments[0]);"
        "select.value = arguments[1]; select.dispatchEvent(new Event('change'))"
    )
    browser.run(script, selector, value)


def the_page_draws_the_leases_below_the_capacity(browser, address):
    open_page(browser, address)
    assert len(browser.all("#rows tr")) == 5
    assert len(browser.all("#chart .band")) >= 5
    assert 95 <= number(browser, "sum-has") <= 100
    assert "no Envoy gets more than" in browser.text("#sentences")
    before = browser.text("#elapsed")
    browser.until(lambda: browser.text("#elapsed") != before, "time passes")
    browser.photograph("playground")


def sliders_and_switches_change_the_fleet(browser, address):
    open_page(browser, address)

    def says(text):
        browser.until(lambda: text in browser.text("#sentences"), f"it says {text!r}")

    drag(browser, "#rows tr:nth-child(1) input", 0)
    says("All Envoys get what they want")
    # A state that lasts as long as a lease is looked for at the speed at which that is ten seconds.
    browser.one("#rows tr:nth-child(2) button").click()
    says("west is cut off: it uses its lease")
    choose(browser, "#speed", 10)
    says("west is cut off and has no lease")
    browser.until(lambda: browser.all("#chart .fallback"), "safe capacity is drawn")
    browser.one("#stop").click()
    says("all leases have expired")
    browser.photograph("playground-stopped")
    choose(browser, "#speed", 1)
    browser.one("#stop").click()
    says("learns for")
    assert "cut=west" in browser.run("return location.hash")


def settings_come_from_the_address(browser, address):
    open_page(browser, address, "#capacity=200&algorithm=static&demand=150,50,30&cut=north")
    assert browser.texts("#rows .name") == ["east", "west", "north"]
    assert browser.text("#capacity-text") == "200"
    assert browser.run("return document.getElementById('algorithm').value") == "static"
    assert browser.texts("#rows button") == ["Cut off", "Cut off", "Connect"]
    browser.one("#reset").click()
    assert len(browser.all("#rows tr")) == 5


def a_pause_stops_the_time(browser, address):
    open_page(browser, address)
    browser.one("#pause").click()
    before = browser.run("return document.getElementById('chart').innerHTML")
    browser.run("return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert browser.run("return document.getElementById('chart').innerHTML") == before
    assert browser.one("#pause").get_attribute("aria-pressed") == "true"


def keys_reach_and_move_everything(browser, address):
    from selenium.webdriver.common.keys import Keys

    open_page(browser, address)
    slider = browser.one("#rows tr:nth-child(3) input")
    before = browser.text("#rows tr:nth-child(3) .wants")
    slider.send_keys(Keys.HOME)
    assert browser.text("#rows tr:nth-child(3) .wants") == "0.0" != before
    nameless = browser.run(
        "return [...document.querySelectorAll('button, input, select')]"
        ".filter(e => !e.labels?.length && !e.ariaLabel && !e.textContent.trim()).length"
    )
    assert nameless == 0, nameless


# Elements that reach out of the padding of their section.
INSIDE = (
    "return [...document.querySelectorAll('section')].flatMap(section => {"
    "  const edge = section.getBoundingClientRect().right - parseFloat(getComputedStyle(section).paddingRight);"
    "  return [...section.querySelectorAll('table, svg, button, input, select, p')]"
    "    .filter(e => e.getBoundingClientRect().right > edge + 1 && !e.matches('.hidden')).map(e => e.outerHTML);"
    "})"
)


def no_width_scrolls_sideways(browser, address):
    from browser import MEDIUM, NARROW, WIDE

    open_page(browser, address, "#demand=60,40,25,10,5,80&cut=coast&capacity=1000")
    for name, size in {"narrow": NARROW, "medium": MEDIUM, "wide": WIDE}.items():
        for scheme in ["light", "dark"]:
            browser.media(scheme)
            browser.size(*size)
            assert browser.overflow() <= 0, (name, browser.overflow())
            assert not (outside := browser.run(INSIDE)), (name, outside)
            browser.photograph(f"playground-{name}-{scheme}", whole=True)


TESTS = [
    the_page_draws_the_leases_below_the_capacity,
    sliders_and_switches_change_the_fleet,
    settings_come_from_the_address,
    a_pause_stops_the_time,
    keys_reach_and_move_everything,
    no_width_scrolls_sideways,
]


def main(selenium, page, screenshots):
    sys.path.insert(0, selenium)
    from browser import Browser

    address = pathlib.Path(page).resolve().as_uri()
    with Browser(screenshots) as browser:
        results = [browser.passes(test, address) for test in TESTS]
    failed = results.count(False)
    word = "FAILED" if failed else "ok"
    print(f"test result: {word}. {results.count(True)} passed; {failed} failed; 0 ignored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
