"""Pages of a scope and of a group, and of what is not there."""

import re


def a_scope_says_who_is_throttled_why_and_since_when(browser, fleet):
    browser.open(fleet.scope_url("doorman/busy"))
    said = browser.text(".verdict")
    want = (
        r"2 of 3 clients are throttled: together all want 180, and the scope's own limit allows 100\. "
        r"The longest is doorman/envoy-[01], for .+ \(since \d\d:\d\d:\d\d UTC\)\."
    )
    assert re.fullmatch(want, said), said
    shares = browser.texts("table.rows tbody td[data-label=has]")[:3]
    # Max-min: who wants least gets all of it, the others the same.
    assert sorted(shares) == ["30", "35", "35"], shares
    assert browser.texts("table.rows tbody .flag")[:3] == ["throttled"] * 2
    # Its limits come from the file.
    assert "the file, where it matches *" in browser.text("main")


def a_scope_shows_the_shares_of_its_clients_over_time(browser, fleet):
    browser.open(fleet.scope_url("doorman/busy"))
    browser.until(lambda: browser.all(".chart"), "there are two samples")
    assert browser.texts(".chart .legend b") == ["C", "B", "A", ""], browser.texts(".chart .legend b")
    # Everything that the legend names is drawn, and the letters stand beside it.
    paths = browser.run("return [...document.querySelectorAll('.plot .band, .plot .line')].map(path => path.classList[1])")
    assert paths == ["b0", "b1", "b2", "limit"], paths
    assert browser.texts(".plot .name") == ["A", "B", "C"]
    assert sorted(browser.texts(".chart .legend .num")) == ["100", "30", "35", "35"]


def the_clients_of_a_scope_can_be_sorted(browser, fleet):
    browser.open(fleet.scope_url("doorman/calm"))
    assert browser.text(".verdict").startswith("None of 2 clients is throttled.")
    for first, second in [("envoy-0", "envoy-1"), ("envoy-1", "envoy-0")]:
        browser.one("thead th:first-child a").click()
        names = ["doorman/" + first, "doorman/" + second]
        browser.until(lambda: browser.texts("table.rows tbody th bdi")[:2] == names, f"{first} is first")


def a_blocked_scope_says_so(browser, fleet):
    browser.open(fleet.scope_url("doorman/blocked"))
    assert "the scope's own limit allows nothing: it blocks every client." in browser.text(".verdict")


def a_scope_without_clients_shows_its_limits(browser, fleet):
    browser.open(fleet.scope_url("doorman/nobody"))
    assert "No client has or wants a lease of it." in browser.text("main")
    assert browser.texts("td[data-label=capacity]") == ["100"]


def a_group_shows_its_members(browser, fleet):
    browser.open(f"{fleet.url}/groups/gold?sort=wanted")
    assert browser.text("h1") == "groupgold"
    assert "100 of 100 requests per second are leased" in browser.text(".verdict")
    assert browser.texts("tbody tr[data-key] th") == ["tenant/acme", "tenant/bee", "tenant/cat"]
    assert browser.text("#count") == "3 resources"
    # Max-min between members: 5, and half of the rest for each of the others.
    assert browser.texts("td[data-label=leased]") == ["47.5", "47.5", "5"]
    browser.one("a[href='/scopes/tenant/acme']").click()
    browser.until(lambda: browser.text("h1") == "scopetenant/acme", "the member has a page")
    assert "the group gold allows" in browser.text(".verdict")
    assert browser.all("a[href='/groups/gold']")


def what_is_not_there_is_a_page_as_well(browser, fleet):
    for path, word in [("/groups/none", "no group is called"), ("/nothing", "nothing is served at /nothing")]:
        browser.open(fleet.url + path)
        assert browser.text("h1").startswith("404"), browser.text("h1")
        assert word in browser.text("main")
        assert browser.text(".brand") == "Tollgate"
    browser.open(f"{fleet.url}/?limit=0")
    assert browser.text("h1").startswith("400")


# The browser itself notes the statuses.
what_is_not_there_is_a_page_as_well.expected = ["status of 404", "status of 400"]


TESTS = [
    a_scope_says_who_is_throttled_why_and_since_when,
    a_scope_shows_the_shares_of_its_clients_over_time,
    the_clients_of_a_scope_can_be_sorted,
    a_blocked_scope_says_so,
    a_scope_without_clients_shows_its_limits,
    a_group_shows_its_members,
    what_is_not_there_is_a_page_as_well,
]
