//! The filter that users load, with an added switch that traps its VM.
//!
//! The switch is added to the built module and is in no source: the tested code is the shipped code, which
//! cannot contain it. A request with very many header fields traps the VM of the worker that gets it, at
//! the worst moment: the filter has drawn tokens and permits for the request and cannot report them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use walrus::ir::BinaryOp;
use walrus::{FunctionBuilder, Module, ValType};

use crate::artifact;
use crate::connection::get;

/// Number of header fields that traps, more than any other request has; Envoy refuses more than 100.
const FIELDS: i32 = 60;
/// Export that Envoy calls for each request, with the stream, the number of its header fields, and
/// whether the request ends with them.
const CALLBACK: &str = "proxy_on_request_headers";

/// Writes the filter with the switch into `dir`.
///
/// # Errors
/// When the filter has not been built, or the file cannot be written.
pub fn module(dir: &Path) -> Result<PathBuf> {
    let mut module = Module::from_file(artifact::filter()?)?;
    let inner = module.exports.get_func(CALLBACK)?;
    let integer = ValType::I32;
    let [stream, fields, end, answer] = [(); 4].map(|()| module.locals.add(integer));
    let mut outer = FunctionBuilder::new(&mut module.types, &[integer; 3], &[integer]);
    outer
        .func_body()
        .local_get(stream)
        .local_get(fields)
        .local_get(end)
        .call(inner)
        .local_set(answer)
        .local_get(fields)
        .i32_const(FIELDS)
        .binop(BinaryOp::I32GeS)
        .if_else(
            None,
            |then| {
                then.unreachable();
            },
            |_| {},
        )
        .local_get(answer);
    let outer = outer.finish(vec![stream, fields, end], &mut module.funcs);
    module.exports.remove(CALLBACK)?;
    module.exports.add(CALLBACK, outer);
    let file = dir.join("trapping.wasm");
    std::fs::write(&file, module.emit_wasm())
        .with_context(|| format!("writing {}", file.display()))?;
    Ok(file)
}

/// Bytes of a request that traps, with the header field that names its scope.
pub fn request(name: &str, value: &str) -> Vec<u8> {
    let names: Vec<String> = (0..FIELDS).map(|n| format!("x-trap-{n}")).collect();
    let mut fields: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    fields.push((name, value));
    get("/", &fields)
}
