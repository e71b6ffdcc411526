//! Addresses and credentials of commands.

use std::net::TcpListener;

use super::{CONFIG, Server, say};
use crate::binary::{file, tollgate};

#[test]
fn a_coordinator_that_is_away_is_named() {
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("http://{gone}");
    for command in [
        "status",
        "top --once",
        "list scopes",
        "get scope a",
        "put group a --requests 1",
        "delete group a",
        "attach tenant a b",
        "detach tenant a",
        "drain a",
        "quota reset a",
        "quota export",
    ] {
        let mut args: Vec<&str> = command.split(' ').collect();
        args.extend(["--server", &url]);
        say(&args, "").failed(1, &format!("no answer from {url}/v1/"));
    }
}

#[test]
fn readiness_needs_no_token_and_shows_in_the_exit_code() {
    let token = "admin: {tokens: [{name: a, role: admin, sha256: ";
    let hash = "0".repeat(64);
    let server = Server::with(&format!("{CONFIG}{token}{hash:?}}}]}}\n"));
    assert_eq!(server.say("ready").done(), "ready\n");
    server.say("status").failed(4, "token");
    let gone = server.url.clone();
    drop(server);
    say(&["ready", "--server", &gone], "").failed(1, "no answer from");
}

#[test]
fn what_answers_but_is_no_coordinator_is_told_from_one() {
    let html = "<html>hello</html>";
    let rows = [
        ("200 OK", 1, "is no JSON: is this a coordinator?"),
        ("502 Bad Gateway", 1, "answered 502 Bad Gateway"),
        (
            "302 Found\r\nlocation: http://127.0.0.1:1/",
            1,
            "answered 302 Found",
        ),
        ("404 Not Found", 3, "answered 404 Not Found"),
    ];
    for (status, code, want) in rows {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let length = html.len();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{html}");
        let stub = std::thread::spawn(move || {
            use std::io::{Read as _, Write as _};
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 4096];
            assert!(stream.read(&mut head).unwrap() > 0);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        say(&["status", "--server", &url], "").failed(code, want);
        stub.join().unwrap();
    }
}

#[test]
fn bad_options_are_refused_before_anything_is_sent() {
    let empty = file("");
    let empty = empty.path().to_str().unwrap();
    let rows: [(&[&str], &str); 10] = [
        (
            &["status", "--server", "localhost:7711"],
            "begins neither with http://",
        ),
        (
            &["status", "--server", "http://"],
            "--server: \"http://\" is no URL",
        ),
        (&["status", "--server", "https://h"], "needs --ca FILE"),
        (
            &["status", "--server", "https://h", "--ca", empty],
            "has no certificate",
        ),
        (
            &["status", "--server", "https://h", "--ca", "/no/such"],
            "/no/such: No such file",
        ),
        (&["status", "--cert", empty], "--key <FILE>"),
        (&["status", "--token", ""], "the token is empty"),
        (
            &["status", "--token", "a b"],
            "a character that no token has",
        ),
        (
            &["status", "--token-file", "/no/such"],
            "--token-file: /no/such",
        ),
        (&["status", "--token-file", empty], "the token is empty"),
    ];
    for (args, want) in rows {
        say(args, "").failed(2, want);
    }
}

#[test]
fn roles_decide_and_a_refusal_says_which_is_needed() {
    let tokens = ["viewer", "admin"].map(|role| {
        let token = say(&["token", "--name", role, "--role", role], "").done();
        let (token, line) = token.trim_end().split_once('\n').unwrap();
        (token.to_owned(), line.to_owned())
    });
    let [(viewer, first), (admin, second)] = tokens;
    let server = Server::with(&format!(
        "{CONFIG}\nadmin:\n  tokens:\n  {first}\n  {second}"
    ));
    let put = |token: &str| server.say(&format!("put group gold --requests 5 --token {token}"));
    put(&viewer).failed(4, "needs a token of role admin");
    put("tollgate_none").failed(4, "the token is unknown");
    assert_eq!(put(&admin).done(), "group gold created\n");
    let read = server
        .say(&format!("get group gold --token {viewer}"))
        .done();
    assert!(read.contains("rate: 5"), "{read}");

    // The environment gives the server and the token where the command line does not.
    let output = tollgate(&["list", "groups"])
        .env("TOLLGATE_SERVER", &server.url)
        .env("TOLLGATE_TOKEN", &viewer)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
