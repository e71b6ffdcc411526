//! The shell of docs/storage.md that copies what was written through the API.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use tollgate_tests::etcd::Etcd;

use super::{CONFIG, Server, say};

/// The script under `From redb to etcd`, with the servers `old` and `new`, and `page` as the length of a page.
fn script(old: &str, new: &str, page: &str) -> String {
    let text = include_str!("../../../../../docs/storage.md");
    let (_, section) = text.split_once("## From redb to etcd").unwrap();
    let (_, rest) = section.split_once("```sh\n").unwrap();
    let (script, _) = rest.split_once("```").unwrap();
    let mut script = script.to_owned();
    for (from, to) in [
        ("http://127.0.0.1:7711", old),
        ("http://127.0.0.1:7811", new),
        ("--limit 1000", page),
    ] {
        assert!(script.contains(from), "no {from} in\n{script}");
        script = script.replace(from, to);
    }
    script
}

/// Runs `script` in `folder` and asserts that it goes through.
fn run(script: &str, folder: &Path) {
    let ours = Path::new(env!("CARGO_BIN_EXE_tollgate")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let done = Command::new("sh")
        .args(["-c", script])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", ours.display()))
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.success(),
        "is there no jq? `just setup` installs it\n{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_to_one_coordinator_is_copied_to_a_cluster() {
    let (data, folder) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let etcd = Etcd::start(data.path(), 1).await.unwrap();
    let old = Server::with(CONFIG);
    for line in [
        "put group gold --requests 20k --request-bytes 50MiB --concurrency 500",
        "put group pool --requests 7 --fair-between clients",
        "put group bare --fair-between members",
        "put override tenant/x --requests 50",
        "put override route/a/b --concurrency 3",
        "attach tenant acme gold --weight 3",
        "attach tenant bee silver",
        "attach tenant cat pool",
        "attach namespace acme/batch bare --weight 7",
    ] {
        old.say(line).done();
    }
    // Names that a shell would take apart.
    for name in ["two words", "-dash", "$(touch x) 'y' \\n"] {
        let attach = ["attach", "tenant", "--server", &old.url, "--", name, "gold"];
        say(&attach, "").done();
    }
    let cluster = format!(
        "cluster: {{node: a, etcd: {{endpoints: {}}}}}",
        etcd.endpoints_yaml()
    );
    let new = Server::with(&format!("{CONFIG}{cluster}\n"));
    // Twice: what is there already is replaced by the same.
    for page in ["--limit 2", "--limit 1000"] {
        run(&script(&old.url, &new.url, page), folder.path());
    }
    for list in ["groups", "overrides", "tenants", "namespaces"] {
        let without_revisions = |server: &Server| {
            let mut list = server.json(&format!("list {list}"));
            let entries = list.as_object_mut().unwrap().values_mut();
            for entry in entries.filter_map(|list| list.as_array_mut()).flatten() {
                entry.as_object_mut().unwrap().remove("revision");
            }
            list
        };
        let (there, here) = (without_revisions(&old), without_revisions(&new));
        assert_eq!(here, there);
    }
    assert_eq!(
        new.json("list tenants")["attachments"]
            .as_array()
            .unwrap()
            .len(),
        6
    );
}
