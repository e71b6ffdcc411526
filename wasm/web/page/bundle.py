"""Puts the playground into one HTML file, which a browser opens without a server.

usage: bundle.py GLUE WASM STYLE OUTPUT

GLUE and WASM are wasm-bindgen's output for `--target no-modules`; STYLE is the coordinator's stylesheet.
"""

import base64
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def main(glue, wasm, style, output):
    with open(wasm, "rb") as file:
        code = base64.b64encode(file.read()).decode()
    page = read(os.path.join(FOLDER, "index.html"))
    parts = {
        "/* {style} */": read(style) + read(os.path.join(FOLDER, "style.css")),
        "/* {glue} */": read(glue),
        "/* {script} */": read(os.path.join(FOLDER, "playground.js")),
        "{wasm}": code,
    }
    for place, part in parts.items():
        assert page.count(place) == 1, f"{place} is not there once"
        assert "</script" not in part and "</style" not in part, f"{place} would end its element"
        page = page.replace(place, part)
    os.makedirs(os.path.dirname(output), exist_ok=True)
    with open(output, "w", encoding="utf-8") as file:
        file.write(page)
    size = os.path.getsize(wasm) // 1024
    print(f"{output}: {len(page) // 1024} kB, {size} kB of it WebAssembly before base64")


if __name__ == "__main__":
    main(*sys.argv[1:])
