"""The search, with and without JavaScript."""

from selenium.webdriver.common.keys import Keys
from status_page import count, scopes


def a_search_narrows_the_table_while_it_is_typed(browser, fleet):
    browser.open(fleet.url)
    field = browser.one("#q")
    field.send_keys("SHOP-19")
    browser.until(lambda: count(browser) == "50 of 91 resources that match", "91 of all match")
    assert "q=SHOP-19" in browser.driver.current_url
    field.send_keys("8")
    browser.until(lambda: count(browser) == "10 resources that match", "10 match")
    assert all(scope.startswith("doorman/shop-198") for scope in scopes(browser))
    assert browser.driver.switch_to.active_element.get_attribute("id") == "q"
    field.send_keys("-none")
    browser.until(lambda: count(browser) == "No resource matches.", "none matches")
    field.send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.DELETE)
    browser.until(lambda: count(browser) == "50 of 2004 resources", "all are there again")
    assert "?" not in browser.driver.current_url.replace("?sort=pressure&order=desc&limit=50", "")


def what_is_typed_is_searched_as_a_text(browser, fleet):
    browser.open(fleet.url)
    browser.one("#q").send_keys("<script>")
    browser.until(lambda: count(browser) == "1 resource that matches", "one matches")
    assert scopes(browser) == ["doorman/<script>document.title='owned'</script>"]


def the_form_works_without_a_script(browser, fleet):
    browser.scripts(False)
    browser.open(fleet.url)
    browser.one("#q").send_keys("shop-0007", Keys.ENTER)
    browser.until(lambda: browser.one("#count").text == "1 resource that matches", "one matches")
    assert browser.one("table.rows tbody th").text == "doorman/shop-0007"
    assert browser.one("noscript button").is_displayed()


TESTS = [
    a_search_narrows_the_table_while_it_is_typed,
    what_is_typed_is_searched_as_a_text,
    the_form_works_without_a_script,
]
