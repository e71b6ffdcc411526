//! Layers of the source: the APIs of clients know no lease table.

use std::fs;
use std::path::{Path, PathBuf};

/// APIs that clients lease through; each only translates into the same refresh, which the router brings to
/// the task that owns the lease table.
const CLIENT_APIS: [&str; 4] = ["doorman", "grpc", "rlqs", "rls"];

/// Names of the lease table, of its parts, and of the task that owns one.
const LEASE_TABLE: [&str; 6] = [
    "lease_server",
    "LeaseServer",
    "core::resource",
    "leases::driver",
    "leases::stats",
    "DriverHandle",
];

/// The files of the module `path` but its tests.
fn files(path: &Path) -> Vec<PathBuf> {
    let is_test = |path: &Path| path.file_stem().is_some_and(|stem| stem == "tests");
    let mut files = vec![path.with_extension("rs")];
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(folder).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        for path in paths.filter(|path| !is_test(path)) {
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files
}

#[test]
fn apis_of_clients_reach_lease_tables_through_the_router_alone() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api");
    for api in CLIENT_APIS {
        let files = files(&source.join(api));
        let texts: Vec<_> = files
            .iter()
            .map(|file| (file, fs::read_to_string(file).unwrap()))
            .collect();
        assert!(
            texts
                .iter()
                .any(|(_, text)| text.contains("leases::router")),
            "{api} is an API of clients"
        );
        for (file, text) in texts {
            for (number, line) in (1..).zip(text.lines()) {
                let name = LEASE_TABLE.iter().find(|name| line.contains(**name));
                assert_eq!(name, None, "{}:{number}", file.display());
            }
        }
    }
}
