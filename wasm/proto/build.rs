//! Compiles the messages of `proto/` without protoc, so that a checkout needs no other tool.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = [
        "tollgate/v1/lease.proto",
        "tollgate/v1/books.proto",
        "doorman/doorman.proto",
    ];
    let files = protox::compile(files, ["proto"])?;
    prost_build::Config::new().compile_fds(files)?;
    Ok(())
}
