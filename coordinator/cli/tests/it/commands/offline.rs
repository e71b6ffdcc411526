//! Commands that need no coordinator.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::{Server, say};
use crate::binary::file;

/// All commands but `help`.
const COMMANDS: [&str; 14] = [
    "serve",
    "check",
    "status",
    "top",
    "get",
    "list",
    "put",
    "delete",
    "attach",
    "detach",
    "drain",
    "quota",
    "token",
    "completions",
];

#[test]
fn completions_are_scripts_that_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = say(&["completions", shell], "").done();
        for command in COMMANDS {
            assert!(script.contains(command), "{shell}: no {command}");
        }
        parses(shell, &script);
    }
    say(&["completions", "tcsh"], "").failed(2, "invalid value 'tcsh'");
}

/// Asserts that `shell`, where it is installed, finds nothing wrong with `script`.
fn parses(shell: &str, script: &str) {
    let child = Command::new(shell).arg("-n").stdin(Stdio::piped()).spawn();
    let Ok(mut child) = child else {
        return;
    };
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(script.as_bytes()).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success(), "{shell}");
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in COMMANDS {
        let help = say(&[command, "--help"], "").done();
        assert!(
            help.starts_with(|first: char| first.is_ascii_uppercase()),
            "{help}"
        );
        assert!(help.contains(&format!("\n  tollgate {command}")), "{help}");
    }
}

#[test]
fn help_has_the_options_that_the_command_uses_and_no_others() {
    for command in COMMANDS {
        let help = say(&[command, "--help"], "").done();
        let offline = ["serve", "check", "token", "completions"].contains(&command);
        assert_eq!(help.contains("--server <URL>"), !offline, "{help}");
        assert_eq!(help.contains("Which coordinator:"), !offline, "{help}");
        let prints_json = !["serve", "completions"].contains(&command);
        assert_eq!(help.contains("      --json"), prints_json, "{help}");
    }
    let check = say(&["check", "--help"], "").done();
    assert!(check.contains("Print errors and warnings"), "{check}");
    let ready = say(&["ready", "--help"], "").done();
    assert!(
        ready.contains("--server <URL>") && !ready.contains("      --json"),
        "{ready}"
    );
}

#[test]
fn a_new_token_lets_in_whom_its_line_says() {
    let token = say(&["token", "--name", "ci", "--role", "admin"], "").done();
    let (token, line) = token.trim_end().split_once('\n').unwrap();
    assert!(token.starts_with("tollgate_"), "{token}");
    assert!(
        !line.contains(token.strip_prefix("tollgate_").unwrap()),
        "{token}"
    );
    let server = Server::with(&format!("{}\nadmin:\n  tokens:\n  {line}", super::CONFIG));
    let url = server.url.as_str();
    let secret = file(&format!("  {token}\n"));
    let secret = secret.path().to_str().unwrap();
    say(&["status", "--server", url, "--token", token], "").done();
    say(&["status", "--server", url, "--token-file", secret], "").done();
    server.say("status").failed(4, "needs a token");

    let again = say(&["token", "--name", "ci", "--json"], "").json();
    assert_eq!(
        (&again["name"], &again["role"]),
        (&"ci".into(), &"viewer".into())
    );
    assert_ne!(again["token"], token);
    assert_eq!(again["sha256"].as_str().unwrap().len(), 64);
    say(&["token", "--name", "a: b"], "").failed(2, "is not a letter and");
}
