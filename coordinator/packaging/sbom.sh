#!/usr/bin/env bash
# Writes the software bill of materials of one package for one target: OUT/PACKAGE-VERSION.cdx.json, in CycloneDX.
#
# usage: sbom.sh OUT FOLDER TARGET   FOLDER of the package in this repository
set -euo pipefail
cd "$(dirname "$0")/../.."

out=$(realpath "$1") folder=$2 target=$3
sources=$(mktemp -d)
trap 'rm -rf "$sources"' EXIT
# cargo-cyclonedx writes beside each Cargo.toml of the workspace, so it gets a copy.
git ls-files -z | xargs -0 cp --parents -t "$sources"
cargo cyclonedx --quiet --manifest-path "$sources/$folder/Cargo.toml" --target "$target" --format json \
    --spec-version 1.5 --override-filename bom
name=$(sed -n 's/^name = "\(.*\)"$/\1/p' "$folder/Cargo.toml" | head -n 1)
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
# Local packages are named by their paths.
sed "s|file://$sources|file:///tollgate|g" "$sources/$folder/bom.json" >"$out/$name-$version.cdx.json"
