"""The status page: counts, order and search of its table."""

ROWS = "table.rows tbody tr"


def count(browser):
    return browser.text("#count").replace("\u202f", " ")


def scopes(browser):
    return browser.texts(f"{ROWS} th")


def the_table_says_how_many_of_how_many_it_shows(browser, fleet):
    browser.open(fleet.url)
    assert count(browser) == "50 of 2004 resources", count(browser)
    assert len(browser.all(ROWS)) == 50
    # The API counts the same.
    assert fleet.read("/v1/status")["match_count"] == 2004


def a_head_of_the_table_sorts_it_both_ways_and_says_so(browser, fleet):
    browser.open(fleet.url)
    assert browser.one("th[aria-sort]").text.startswith("wanted of limit")
    browser.one("thead th:first-child a").click()
    browser.until(lambda: scopes(browser)[0].startswith('doorman/"'), "it is sorted by scope")
    assert browser.one("th[aria-sort]").get_attribute("aria-sort") == "ascending"
    assert browser.one("select[name=sort]").get_attribute("value") == "scope"
    browser.one("thead th:first-child a").click()
    browser.until(lambda: scopes(browser)[0] == "tenant/cat", "the order is turned round")
    assert browser.one("th[aria-sort]").get_attribute("aria-sort") == "descending"
    assert scopes(browser) == sorted(scopes(browser), reverse=True)
    browser.driver.back()
    browser.until(lambda: scopes(browser)[0].startswith('doorman/"'), "the way back leads to the first order")


def the_throttled_are_marked_with_a_word(browser, fleet):
    browser.open(f"{fleet.url}/?only=throttled&sort=scope")
    assert count(browser) == "4 resources that match", count(browser)
    assert scopes(browser) == ["doorman/blocked", "doorman/busy", "tenant/acme", "tenant/bee"]
    marks = browser.texts(f"{ROWS} .flag")
    assert marks == ["1 throttled", "2 throttled", "1 throttled", "1 throttled"], marks
    assert "throttled" in browser.text(".legend.inline")


def the_form_shows_what_the_address_asks_for(browser, fleet):
    browser.open(f"{fleet.url}/?q=shop-01&sort=scope&order=desc&unit=requests&limit=100")
    fields = ["q", "sort", "order", "unit", "limit"]
    values = [browser.one(f"[name={field}]").get_attribute("value") for field in fields]
    assert values == ["shop-01", "scope", "desc", "requests", "100"], values
    assert count(browser) == "100 resources that match", count(browser)


TESTS = [
    the_table_says_how_many_of_how_many_it_shows,
    a_head_of_the_table_sorts_it_both_ways_and_says_so,
    the_throttled_are_marked_with_a_word,
    the_form_shows_what_the_address_asks_for,
]
