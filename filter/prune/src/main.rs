//! Build step for the filter: removes the exports that it does not need, gives Envoy the status of
//! requests that wait, and checks what is left.
//!
//! Envoy enters the VM for every callback that a module exports, several times per request, even
//! where the SDK's default does nothing. Each crossing costs a good part of a microsecond, so the
//! module keeps only the callbacks that the filter acts on. The check that follows is the one that
//! CI relies on: a module that asks the host for more than this list, or that lost a callback,
//! fails the build instead of failing to load.
//!
//! The SDK's `Action::Pause` is the status 1. Where a plugin has `allow_on_headers_stop_iteration`,
//! Envoy stops the headers only for that, and the body takes the request past the filter. So the
//! export for request headers returns 4, which stops all of the request in every configuration.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Parser;
use walrus::Module;
use walrus::ir::BinaryOp;

/// Exports of the pruned module, no more and no less.
const EXPORTS: &[&str] = &[
    "_initialize",
    "memory",
    "proxy_abi_version_0_2_1",
    "proxy_on_configure",
    "proxy_on_context_create",
    "proxy_on_delete",
    "proxy_on_grpc_close",
    "proxy_on_grpc_receive",
    "proxy_on_memory_allocate",
    "proxy_on_request_headers",
    "proxy_on_tick",
    "proxy_on_vm_start",
];

/// The callback that makes requests wait.
const REQUEST_HEADERS: &str = "proxy_on_request_headers";
/// Shift that makes the SDK's status for a pause, 1, that of Envoy's `StopAllIterationAndWatermark`, 4;
/// zero, to continue, stays.
const PAUSE_SHIFT: i32 = 2;

/// Imports that the filter needs from the host, as `module.name`.
const IMPORTS: &[&str] = &[
    "env.proxy_call_foreign_function",
    "env.proxy_continue_stream",
    "env.proxy_define_metric",
    "env.proxy_get_buffer_bytes",
    "env.proxy_get_header_map_value",
    "env.proxy_get_property",
    "env.proxy_get_shared_data",
    "env.proxy_grpc_call",
    "env.proxy_grpc_cancel",
    "env.proxy_grpc_close",
    "env.proxy_grpc_send",
    "env.proxy_grpc_stream",
    "env.proxy_increment_metric",
    "env.proxy_log",
    "env.proxy_record_metric",
    "env.proxy_remove_header_map_value",
    "env.proxy_replace_header_map_value",
    "env.proxy_send_local_response",
    "env.proxy_set_effective_context",
    "env.proxy_set_property",
    "env.proxy_set_shared_data",
    "env.proxy_set_tick_period_milliseconds",
    "wasi_snapshot_preview1.clock_time_get",
    "wasi_snapshot_preview1.environ_get",
    "wasi_snapshot_preview1.environ_sizes_get",
    "wasi_snapshot_preview1.fd_write",
    "wasi_snapshot_preview1.proc_exit",
    "wasi_snapshot_preview1.random_get",
];

/// Imports that only the default methods of the SDK's context traits call, never the filter. They
/// are in the contexts' virtual tables, where no pruning can tell that they are unused. All of them
/// belong to ABI 0.2.1, so every host has them.
const IMPORTS_OF_THE_SDK: &[&str] = &[
    "env.proxy_add_header_map_value",
    "env.proxy_close_stream",
    "env.proxy_dequeue_shared_queue",
    "env.proxy_done",
    "env.proxy_enqueue_shared_queue",
    "env.proxy_get_current_time_nanoseconds",
    "env.proxy_get_header_map_pairs",
    "env.proxy_get_status",
    "env.proxy_http_call",
    "env.proxy_register_shared_queue",
    "env.proxy_resolve_shared_queue",
    "env.proxy_set_buffer_bytes",
    "env.proxy_set_header_map_pairs",
];

/// Removes the exports that the filter does not need from a built module, checks that it exports
/// and imports exactly what it should, and writes it out.
#[derive(Debug, Parser)]
struct Arguments {
    /// The module as cargo built it.
    input: PathBuf,
    /// Where to write the pruned module; without it, the input is only checked after pruning.
    output: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let mut module = Module::from_file(&arguments.input)
        .with_context(|| format!("cannot read {} as wasm", arguments.input.display()))?;
    prune(&mut module);
    stop_bodies(&mut module)?;
    check(&module).with_context(|| format!("{} is refused", arguments.input.display()))?;
    if let Some(output) = &arguments.output {
        std::fs::write(output, module.emit_wasm())
            .with_context(|| format!("cannot write {}", output.display()))?;
    }
    Ok(())
}

fn prune(module: &mut Module) {
    let unneeded: Vec<_> = module
        .exports
        .iter()
        .filter(|export| !EXPORTS.contains(&export.name.as_str()))
        .map(walrus::Export::id)
        .collect();
    for id in unneeded {
        module.exports.delete(id);
    }
    walrus::passes::gc::run(module);
}

/// Makes a request that waits stop with its body, whatever the plugin's configuration is.
fn stop_bodies(module: &mut Module) -> anyhow::Result<()> {
    let callback = module.exports.get_func(REQUEST_HEADERS)?;
    module.replace_exported_func(callback, |(body, arguments)| {
        for argument in arguments {
            body.local_get(*argument);
        }
        body.call(callback);
        body.i32_const(PAUSE_SHIFT).binop(BinaryOp::I32Shl);
    })?;
    Ok(())
}

fn check(module: &Module) -> anyhow::Result<()> {
    let exports: BTreeSet<&str> = module.exports.iter().map(|e| e.name.as_str()).collect();
    let lost: Vec<_> = EXPORTS.iter().filter(|n| !exports.contains(*n)).collect();
    if !lost.is_empty() {
        bail!("it lacks the exports {lost:?}");
    }
    let foreign: Vec<String> = imports(module)
        .filter(|name| !IMPORTS.contains(&name.as_str()))
        .filter(|name| !IMPORTS_OF_THE_SDK.contains(&name.as_str()))
        .collect();
    if !foreign.is_empty() {
        bail!("it imports {foreign:?}, which is not on the list of what a host must give");
    }
    let imports: Vec<String> = imports(module).collect();
    let unused = IMPORTS
        .iter()
        .filter(|name| !imports.iter().any(|import| import == *name));
    let unused: Vec<_> = unused.collect();
    if !unused.is_empty() {
        bail!("it does not import {unused:?}, which the list and its reasons still have");
    }
    Ok(())
}

/// Imports of a module, as `module.name`.
fn imports(module: &Module) -> impl Iterator<Item = String> {
    let imports = module.imports.iter();
    imports.map(|import| format!("{}.{}", import.module, import.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use walrus::FunctionBuilder;
    use walrus::ValType::I32;

    /// The page that says of each export and import why it is there.
    const PAGE: &str = include_str!("../../../docs/design-proxy.md");

    /// The names in the first cells of the page's table whose first column is `column`.
    fn documented(column: &str) -> Vec<&'static str> {
        let (_, table) = PAGE.split_once(&format!("| {column} | called |")).unwrap();
        let rows = table
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with("| `"));
        let names = rows.map(|row| row.split('`').nth(1).unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn the_reason_of_each_export_and_import_is_documented() {
        assert_eq!(documented("export"), EXPORTS);
        let mut imports: Vec<&str> = IMPORTS
            .iter()
            .map(|name| name.split('.').nth(1).unwrap())
            .collect();
        imports.sort_unstable();
        assert_eq!(documented("import"), imports);
        assert_eq!(IMPORTS_OF_THE_SDK.len(), 13, "the page says thirteen");
    }

    fn module(exports: &[&str], imports: &[(&str, &str)]) -> Module {
        let mut module = Module::default();
        let mut calls = Vec::new();
        for (from, name) in imports {
            let ty = module.types.add(&[], &[]);
            calls.push(module.add_import_func(from, name, ty).0);
        }
        for name in exports {
            let mut builder = FunctionBuilder::new(&mut module.types, &[], &[]);
            for call in &calls {
                builder.func_body().call(*call);
            }
            let function = builder.finish(vec![], &mut module.funcs);
            module.exports.add(name, function);
        }
        module
    }

    fn all_imports() -> Vec<(&'static str, &'static str)> {
        let all = IMPORTS.iter().map(|name| name.split_once('.').unwrap());
        all.collect()
    }

    #[test]
    fn unneeded_exports_go_and_take_their_imports_along() {
        let mut module = module(EXPORTS, &all_imports());
        let ty = module.types.add(&[], &[]);
        let (call, _) = module.add_import_func("env", "proxy_new_call", ty);
        let mut builder = FunctionBuilder::new(&mut module.types, &[], &[]);
        builder.func_body().call(call);
        let function = builder.finish(vec![], &mut module.funcs);
        module.exports.add("proxy_on_response_headers", function);
        assert!(check(&module).is_err());
        prune(&mut module);
        check(&module).unwrap();
        assert_eq!(module.exports.iter().count(), EXPORTS.len());
    }

    #[test]
    fn the_callback_for_request_headers_returns_four_for_one() {
        let mut module = Module::default();
        let mut builder = FunctionBuilder::new(&mut module.types, &[I32; 3], &[I32]);
        let arguments = [(); 3].map(|()| module.locals.add(I32));
        builder.func_body().local_get(arguments[2]);
        let function = builder.finish(arguments.to_vec(), &mut module.funcs);
        module.exports.add(REQUEST_HEADERS, function);
        stop_bodies(&mut module).unwrap();

        let engine = wasmi::Engine::default();
        let compiled = wasmi::Module::new(&engine, module.emit_wasm()).unwrap();
        let mut store = wasmi::Store::new(&engine, ());
        let linker = wasmi::Linker::new(&engine);
        let instance = linker.instantiate_and_start(&mut store, &compiled).unwrap();
        let callback = instance.get_typed_func::<(i32, i32, i32), i32>(&store, REQUEST_HEADERS);
        let callback = callback.unwrap();
        for (status, envoys) in [(0, 0), (1, 4)] {
            assert_eq!(callback.call(&mut store, (7, 8, status)).unwrap(), envoys);
        }
    }

    #[test]
    fn a_foreign_or_an_unused_import_and_a_lost_export_are_named() {
        let mut imports = all_imports();
        let foreign = module(
            EXPORTS,
            &[&imports[..], &[("__wbindgen_placeholder__", "x")]].concat(),
        );
        let message = check(&foreign).unwrap_err().to_string();
        assert!(message.contains("__wbindgen_placeholder__.x"), "{message}");

        let lost = module(&EXPORTS[1..], &imports);
        let message = check(&lost).unwrap_err().to_string();
        assert!(message.contains("_initialize"), "{message}");

        imports.retain(|(_, name)| *name != "proxy_log");
        let unused = module(EXPORTS, &imports);
        let message = check(&unused).unwrap_err().to_string();
        assert!(message.contains("proxy_log"), "{message}");
    }
}
