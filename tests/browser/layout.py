"""The pages in narrow and wide windows, light and dark: nothing sticks out, everything can be read. Takes the
photographs."""

import urllib.parse

from browser import LAPTOP, MEDIUM, NARROW, WIDE
from fleet import HOSTILE

# Contrast that WCAG 2 asks for between a text and its background.
CONTRAST_MIN = 4.5

# Returns the least contrast of the texts on the page, with the text.
CONTRAST = """
const parse = color => {
  const [r, g, b, a = 1] = color.match(/[\\d.]+/g).map(Number);
  return {rgb: [r, g, b], a};
};
const light = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * x + .7152 * y + .0722 * z;
};
const behind = node => {
  for (let e = node; e; e = e.parentElement) {
    const {rgb, a} = parse(getComputedStyle(e).backgroundColor);
    if (a === 1) return rgb;
  }
  return [255, 255, 255];
};
let least = [99, ""];
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const parent = texts.currentNode.parentElement;
  if (!texts.currentNode.data.trim() || parent.closest("script, style, svg, noscript")) continue;
  if (!parent.getClientRects().length) continue;
  const [a, b] = [light(parse(getComputedStyle(parent).color).rgb), light(behind(parent))].sort((x, y) => y - x);
  const contrast = (a + .05) / (b + .05);
  if (contrast < least[0]) least = [contrast, texts.currentNode.data.trim().slice(0, 40)];
}
return least;
"""


def pages(fleet):
    long = urllib.parse.quote(f"doorman/{HOSTILE[-1]}")
    return {
        "status": "/",
        "throttled": "/?only=throttled&sort=scope",
        "scope": "/scopes/doorman/busy",
        "scope-long": f"/scopes/{long}",
        "member": "/scopes/tenant/acme",
        "group": "/groups/gold",
        "missing": "/groups/none",
    }


def no_page_is_wider_than_its_window(browser, fleet):
    for size, width in ((NARROW, "narrow"), (MEDIUM, "medium"), (LAPTOP, "laptop"), (WIDE, "wide")):
        browser.size(*size)
        for name, path in pages(fleet).items():
            browser.open(fleet.url + path)
            assert browser.overflow() <= 0, f"{name} is {browser.overflow()} pixels too wide at {size[0]}"
            browser.photograph(f"{name}-{width}", whole=True)
            browser.size(*size)


def every_text_stands_out_from_its_background(browser, fleet):
    for scheme in ("light", "dark"):
        browser.media(scheme)
        for name, path in pages(fleet).items():
            browser.open(fleet.url + path)
            contrast, text = browser.run(CONTRAST)
            assert contrast >= CONTRAST_MIN, f"{name}, {scheme}: {text!r} has a contrast of {contrast:.2f}"
            if scheme == "dark":
                browser.photograph(f"{name}-dark")


for test in (no_page_is_wider_than_its_window, every_text_stands_out_from_its_background):
    # The browser itself notes the status of the page that is not there.
    test.expected = ["status of 404"]


TESTS = [no_page_is_wider_than_its_window, every_text_stands_out_from_its_background]
