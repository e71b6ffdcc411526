//! Generates the gRPC services from the protocol crate's schemas; the messages come from there too.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=../wasm/proto/proto");
    let files = ["tollgate/v1/lease.proto", "doorman/doorman.proto"];
    let files = protox::compile(files, ["../wasm/proto/proto"])?;
    tonic_prost_build::configure()
        .extern_path(".tollgate.v1", "::tollgate_proto::v1")
        .extern_path(".doorman", "::tollgate_proto::doorman")
        .compile_fds(files)?;
    Ok(())
}
