"""The page of the API's description."""


def every_operation_and_schema_of_the_description_is_on_its_page(browser, fleet):
    document = fleet.read("/v1/openapi.json")
    operations = [one["operationId"] for item in document["paths"].values() for one in item.values()]
    schemas = [f"schema-{name}" for name in document["components"]["schemas"]]
    browser.open(f"{fleet.url}/v1/docs")
    sections = browser.run("return [...document.querySelectorAll('section.operation')].map(e => e.id)")
    assert sorted(sections) == sorted(operations + schemas)


def every_link_of_the_page_leads_somewhere(browser, fleet):
    browser.open(f"{fleet.url}/v1/docs")
    dead = browser.run(
        "return [...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.getAttribute('href').slice(1))"
        ".filter(id => !document.getElementById(id))"
    )
    assert dead == [], dead


def the_page_shows_how_an_operation_is_called(browser, fleet):
    browser.open(f"{fleet.url}/v1/docs#putGroup")
    section = browser.text("#putGroup")
    for part in ("PUT /v1/groups/{name}", "application/json", "curl -X PUT", "$TOLLGATE/v1/groups/$name", "409"):
        assert part in section, (part, section)


TESTS = [
    every_operation_and_schema_of_the_description_is_on_its_page,
    every_link_of_the_page_leads_somewhere,
    the_page_shows_how_an_operation_is_called,
]
