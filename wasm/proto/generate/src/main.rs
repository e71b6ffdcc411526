//! Generates the Rust code of the protocol's schemas.
//!
//! The generated files are committed, so that a build needs neither protoc nor the code generators and
//! their dependencies. `just generate` writes them; `just lint` runs this with `--check` and fails when a
//! schema has changed and its code has not.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use tempfile::TempDir;
use tonic_prost_build::Builder;

/// The schemas, below `wasm/proto/proto`.
const SCHEMAS: [&str; 7] = [
    "tollgate/v1/lease.proto",
    "tollgate/v1/forward.proto",
    "tollgate/v1/peer.proto",
    "tollgate/v1/snapshot.proto",
    "doorman/doorman.proto",
    "envoy/service/ratelimit/v3/rls.proto",
    RLQS,
];

/// The schema whose messages are the longest.
const RLQS: &str = "envoy/service/rate_limit_quota/v3/rlqs.proto";

/// The message types, which every crate shares.
const MESSAGES: &str = "wasm/proto/src/generated";

/// The gRPC clients and servers, which only the coordinator needs.
const SERVICES: &str = "coordinator/net/src/generated";

/// The gRPC client of the lease service, for services without Envoy.
const CLIENT: &str = "coordinator/client/src/generated";

/// Writes the Rust code of the .proto files into the checkout.
#[derive(Debug, Parser)]
struct Options {
    /// Write nothing; fail if a generated file differs from what its schema gives.
    #[arg(long)]
    check: bool,

    /// The root of the checkout.
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let schemas = options.root.join("wasm/proto/proto");
    for (target, generate) in [
        (MESSAGES, messages as fn(&Path, &Path) -> Result<()>),
        (SERVICES, services),
        (CLIENT, client),
    ] {
        let fresh = TempDir::new()?;
        generate(&schemas, fresh.path()).with_context(|| format!("cannot generate {target}"))?;
        deliver(fresh.path(), &options.root.join(target), options.check)?;
    }
    Ok(())
}

/// Generates the messages of all schemas into the folder `out`.
fn messages(schemas: &Path, out: &Path) -> Result<()> {
    let files = protox::compile(SCHEMAS, [schemas])?;
    prost_build::Config::new()
        .out_dir(out)
        // The order of a bucket's name means nothing, and a name is looked up by.
        .btree_map([".envoy.service.rate_limit_quota"])
        .compile_fds(files)?;
    Ok(())
}

/// Generates the services of all schemas into the folder `out`; their messages are those of
/// `tollgate-proto`.
fn services(schemas: &Path, out: &Path) -> Result<()> {
    let (rlqs, others): (Vec<_>, Vec<_>) = SCHEMAS.into_iter().partition(|schema| *schema == RLQS);
    stubs(tonic_prost_build::configure(), &others, schemas, out)?;
    let bounded = tonic_prost_build::configure().codec_path("crate::wire::BoundedCodec");
    stubs(bounded, &rlqs, schemas, out)
}

/// Generates the client of the lease service into the folder `out`.
fn client(schemas: &Path, out: &Path) -> Result<()> {
    let clients = tonic_prost_build::configure().build_server(false);
    stubs(clients, &["tollgate/v1/lease.proto"], schemas, out)
}

fn stubs(builder: Builder, of: &[&str], schemas: &Path, out: &Path) -> Result<()> {
    let files = protox::compile(of, [schemas])?;
    builder
        .out_dir(out)
        .extern_path(".tollgate.v1", "::tollgate_proto::v1")
        .extern_path(".doorman", "::tollgate_proto::doorman")
        .extern_path(".envoy", "::tollgate_proto::envoy")
        .compile_fds(files)?;
    Ok(())
}

/// Writes each file of `fresh` into `target`, or compares it with the one there.
fn deliver(fresh: &Path, target: &Path, check: bool) -> Result<()> {
    for file in fs::read_dir(fresh)? {
        let file = file?;
        let code = fs::read_to_string(file.path())?;
        let path = target.join(file.file_name());
        if fs::read_to_string(&path).is_ok_and(|committed| committed == code) {
            continue;
        }
        if check {
            bail!(
                "{} is not what the schemas give: run `just generate` and commit the result",
                path.display()
            );
        }
        fs::write(&path, code).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
