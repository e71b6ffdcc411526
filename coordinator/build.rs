//! Generates the gRPC service from the protocol crate's schema; the messages come from there too.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=../wasm/proto/proto");
    let files = protox::compile(["tollgate/v1/lease.proto"], ["../wasm/proto/proto"])?;
    tonic_prost_build::configure()
        .extern_path(".tollgate.v1", "::tollgate_proto::v1")
        .compile_fds(files)?;
    Ok(())
}
