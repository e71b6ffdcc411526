#!/usr/bin/env -S node --no-warnings
// Cargo's runner for wasm32-wasip1 (.cargo/config.toml): runs one test binary in Node's WASI.
//
// Ordinary `#[test]`s run in a wasm VM this way, and the exit code is theirs. A panic traps there
// (there is nothing to unwind), which ends the run; the test's name is printed before it.
import { readFile } from "node:fs/promises";
import process from "node:process";
import { WASI } from "node:wasi";

const [file, ...args] = process.argv.slice(2);
const wasi = new WASI({
  version: "preview1",
  args: [file, ...args],
  // A captured panic message would be lost with the trap.
  env: { ...process.env, RUST_TEST_NOCAPTURE: "1" },
  // Cargo runs it in the package's folder, where proptest keeps the cases that once failed.
  preopens: { ".": "." },
  returnOnExit: true,
});
const module = await WebAssembly.compile(await readFile(file));
const instance = await WebAssembly.instantiate(module, wasi.getImportObject());
try {
  process.exitCode = wasi.start(instance);
} catch (error) {
  console.error(error);
  process.exitCode = 1;
}
