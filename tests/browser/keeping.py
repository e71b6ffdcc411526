"""Updates: what they keep, and what they say."""

import re
import signal

from selenium.webdriver.common.keys import Keys


def an_update_keeps_focus_selection_and_scrolling(browser, fleet):
    browser.open(fleet.url)
    field = browser.one("#q")
    field.send_keys("shop-00")
    browser.until(lambda: "q=shop-00" in browser.driver.current_url, "the search is in the address")
    browser.run("const q = document.getElementById('q'); q.setSelectionRange(2, 5); scrollTo(0, 300)")
    kept = "const q = document.activeElement; return [q.id, q.selectionStart, q.selectionEnd]"
    place = "return document.getElementById('q').getBoundingClientRect().top"
    before = browser.run(place)
    browser.refreshed()
    assert browser.run(kept) == ["q", 2, 5], browser.run(kept)
    # The rows in view stay where they are, also when the chart grows above them.
    assert abs(browser.run(place) - before) < 1, (before, browser.run(place))


def an_update_keeps_the_focus_on_a_row_that_moves(browser, fleet):
    browser.open(f"{fleet.url}/?only=throttled&sort=wanted")
    first = lambda: browser.texts("table.rows tbody th")[0]
    assert first() == "doorman/busy", first()
    browser.run("document.querySelector('a[href=\"/scopes/tenant/acme\"]').focus()")
    fleet.ask("envoy-0", {"acme": 9000})
    browser.until(lambda: first() == "tenant/acme", "the row is the first")
    focused = browser.run("return document.activeElement.getAttribute('href')")
    assert focused == "/scopes/tenant/acme", focused
    fleet.settle()


def a_sorted_head_keeps_the_focus(browser, fleet):
    browser.open(fleet.url)
    head = browser.one("thead th:first-child a")
    head.send_keys(Keys.ENTER)
    browser.until(lambda: browser.all("th:first-child[aria-sort]"), "it is sorted by scope")
    assert browser.driver.switch_to.active_element.text.startswith("scope")


def the_time_of_the_last_success_is_always_there(browser, fleet):
    other = fleet.another()
    try:
        browser.open(other.url)
        assert re.fullmatch(r"updated \d\d:\d\d:\d\d", browser.text("#updated")), browser.text("#updated")
        browser.refreshed()
        other.end(signal.SIGKILL)
        said = browser.until(lambda: browser.text("#trouble"), "the coordinator does not answer")
        assert re.fullmatch(r"not updated since \d\d:\d\d:\d\d \(no answer\); trying again", said), said
        assert browser.text("#updated") == ""
        # The last figures can still be read.
        assert "epoch" in browser.text("main")
    finally:
        other.end(signal.SIGKILL)


# The browser itself notes each call that has no answer.
the_time_of_the_last_success_is_always_there.expected = ["ERR_CONNECTION"]


TESTS = [
    an_update_keeps_focus_selection_and_scrolling,
    an_update_keeps_the_focus_on_a_row_that_moves,
    a_sorted_head_keeps_the_focus,
    the_time_of_the_last_success_is_always_there,
]
