#!/usr/bin/env -S node --no-warnings
// Cargo's runner for wasm32-wasip1 (.cargo/config.toml): runs one test binary in Node's WASI.
//
// Ordinary `#[test]`s run in a wasm VM this way, and the exit code is theirs. A panic traps there
// (there is nothing to unwind), which ends the run; the test's name is printed before it.
import { readFile } from "node:fs/promises";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { WASI } from "node:wasi";

const [file, ...args] = process.argv.slice(2);
const wasi = new WASI({
  version: "preview1",
  args: [file, ...args],
  // A captured panic message would be lost with the trap.
  env: { ...process.env, RUST_TEST_NOCAPTURE: "1" },
  // Relative paths are the package's, where cargo runs it. The root is the workspace's, because proptest
  // looks there for the source file beside which it keeps the cases that once failed.
  preopens: { ".": ".", "/": fileURLToPath(new URL("..", import.meta.url)) },
  returnOnExit: true,
});
const module = await WebAssembly.compile(await readFile(file));
const imports = wasi.getImportObject();
// What a host like Envoy would give may be named by the code under test, but not called.
for (const { module: from, name, kind } of WebAssembly.Module.imports(module)) {
  if (kind === "function" && !(from in imports && name in imports[from])) {
    imports[from] = { ...imports[from] };
    imports[from][name] = () => {
      throw new Error(`a test called ${from}.${name}, which only a host has`);
    };
  }
}
const { memory, _start } = (await WebAssembly.instantiate(module, imports)).exports;
try {
  // Not the instance itself: the filter's exports make it look like a library, which start refuses.
  process.exitCode = wasi.start({ exports: { memory, _start } });
} catch (error) {
  console.error(error);
  process.exitCode = 1;
}
