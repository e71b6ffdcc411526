"""Prints the licences of all that is linked into a program: most ask to be passed on with it.

usage: notices.py PACKAGE TARGET
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LICENCE_FILE = re.compile(r"(licen[sc]e|copying|copyright|notice|unlicense)", re.IGNORECASE)


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def linked(package, target):
    """(name, version) of all dependencies, without those that only build or test."""
    select = ["-p", package, "--target", target, "-e", "normal,no-proc-macro"]
    tree = cargo("tree", "--locked", *select, "--prefix", "none", "-f", "{p}")
    return {tuple(line.split()[:2]) for line in tree.splitlines() if line}


def licence_files(crate):
    folder = pathlib.Path(crate["manifest_path"]).parent
    return sorted(file for file in folder.iterdir() if file.is_file() and LICENCE_FILE.match(file.name))


def main(package, target):
    dependencies = linked(package, target)
    crates = json.loads(cargo("metadata", "--locked", "--format-version", "1"))["packages"]
    used_by = {}
    for crate in crates:
        if crate["source"] is None or (crate["name"], f"v{crate['version']}") not in dependencies:
            continue
        name = f"{crate['name']} {crate['version']} ({crate['license']})"
        texts = [file.read_text(errors="replace").strip() for file in licence_files(crate)]
        for text in texts or [f"The package has no copy of its licence: {crate['repository']}"]:
            used_by.setdefault(text, []).append(name)
    c_library = " and musl or WASI's C library (MIT) are" if not target.endswith("-gnu") else " is"
    print(f"Rust's standard library (MIT OR Apache-2.0){c_library} linked, too.\n")
    for text, names in sorted(used_by.items(), key=lambda item: item[1]):
        print("=" * 100, *names, "-" * 100, text, "", sep="\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
