"""Scopes with names that try to be more than a text."""

from fleet import HOSTILE


def no_name_gets_out_of_its_place(browser, fleet):
    browser.open(f"{fleet.url}/?q=doorman&limit=200&sort=wanted")
    shown = browser.texts("table.rows tbody th")
    for name in HOSTILE:
        visible = f"doorman/{name}".replace("\u202e", "\ufffd").replace("\u202c", "\ufffd")
        assert visible in shown, (visible, shown)
    assert_harmless(browser)
    # Each name links to the page of its scope, which shows the same.
    links = browser.run(
        "return [...document.querySelectorAll('table.rows tbody th a')].map(a => [a.textContent, a.href])"
    )
    for text, link in links[: len(HOSTILE) + 5]:
        browser.open(link)
        assert browser.text("h1") == f"scope{text}", (browser.text("h1"), text)
        assert browser.all(".verdict"), f"{text} has no client on {link}"
        assert_harmless(browser)


def a_search_and_a_path_are_texts_as_well(browser, fleet):
    browser.open(f"{fleet.url}/?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
    assert browser.one("#q").get_attribute("value") == '"><script>alert(1)</script>'
    assert_harmless(browser)
    browser.open(f"{fleet.url}/groups/%3Cimg%20src=x%20onerror=alert(1)%3E")
    assert "<img src=x onerror=alert(1)>" in browser.text("main")
    assert_harmless(browser)


# The browser itself notes the status of the group that is not there.
a_search_and_a_path_are_texts_as_well.expected = ["status of 404"]


def assert_harmless(browser):
    assert browser.driver.title.endswith("Tollgate"), browser.driver.title
    strange = browser.run("return document.querySelectorAll('main script, img, [onerror], [onfocus], iframe').length")
    assert strange == 0, f"{strange} elements that no template has"


TESTS = [no_name_gets_out_of_its_place, a_search_and_a_path_are_texts_as_well]
