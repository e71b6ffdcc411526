//! Lines that the real binary writes to standard error.

use std::collections::BTreeSet;

use tollgate_net::wire::LeaseServiceClient;

use crate::binary::{GOOD, Serve, file, run};
use crate::harness::request;

/// Returns the log of a coordinator with `args` to which a client has sent a bad call `calls` times.
async fn log_of_bad_calls(args: &[&str], calls: usize) -> Vec<String> {
    let config = file(GOOD);
    let args: Vec<&str> = ["--log", "info,tollgate=debug"]
        .into_iter()
        .chain(args.iter().copied())
        .collect();
    let serve = Serve::start(config.path().to_str().unwrap(), &args);
    let address = format!("http://{}", serve.address("grpc"));
    let mut client = LeaseServiceClient::connect(address).await.unwrap();
    for _ in 0..calls {
        let bad = request(
            "a\r\n2026-01-01T00:00:00Z  INFO forged\u{1b}[2J",
            &[("b\nc", 1, 0.0, 1.0)],
        );
        client.refresh(bad).await.unwrap_err();
    }
    drop(client);
    // On another thread, so that the client's connection can end meanwhile.
    let end = tokio::task::spawn_blocking(|| serve.end("TERM"));
    let (code, log) = end.await.unwrap();
    assert_eq!(code, 0, "{log}");
    log.lines().map(str::to_owned).collect()
}

fn count(lines: &[String], text: &str) -> usize {
    lines.iter().filter(|line| line.contains(text)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_client_sends_can_forge_a_line() {
    for format in ["text", "json"] {
        let lines = log_of_bad_calls(&["--log-format", format], 1).await;
        assert_eq!(count(&lines, "refresh: call refused"), 1, "{lines:#?}");
        for line in lines {
            assert!(!line.contains(char::is_control), "{line:?}");
            let own = line.starts_with(if format == "text" {
                "20"
            } else {
                "{\"timestamp\""
            });
            assert!(own && !line.starts_with("2026-01-01T00:00:00Z"), "{line}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn json_lines_are_objects_with_level_target_and_message() {
    let lines = log_of_bad_calls(&["--log-format", "json"], 1).await;
    let events = lines.iter().map(|line| serde_json::from_str(line).unwrap());
    let events: Vec<serde_json::Value> = events.collect();
    let starting = &events[0];
    assert_eq!(starting["level"], "INFO");
    assert_eq!(starting["target"], "tollgate::serve");
    assert_eq!(starting["message"], "coordinator: starting");
    assert_eq!(starting["limits"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_line_begins_with_the_component_that_speaks() {
    let lines = log_of_bad_calls(&["--log-format", "json"], 1).await;
    let mut components = BTreeSet::new();
    for line in &lines {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let message = event["message"].as_str().unwrap();
        let (component, _) = message.split_once(": ").expect(message);
        components.insert(component.to_owned());
    }
    let want = ["admin API", "catalog", "coordinator", "epoch", "refresh"];
    assert_eq!(components, want.map(str::to_owned).into());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_repeats_is_written_a_few_times_and_then_left_out() {
    for format in ["text", "json"] {
        let lines = log_of_bad_calls(&["--log-format", format], 30).await;
        assert_eq!(count(&lines, "refresh: call refused"), 10, "{lines:#?}");
        assert_eq!(
            count(&lines, "logging: left out repeated lines"),
            1,
            "{lines:#?}"
        );
        assert_eq!(count(&lines, "coordinator: stopped"), 1, "{lines:#?}");
    }
}

#[test]
fn bad_options_of_the_log_are_refused_with_the_reason() {
    let config = file(GOOD);
    let config = config.path().to_str().unwrap();
    let rows: [(&[&str], &str); 5] = [
        (&["--log", "a=b=c"], "--log: "),
        (&["--log-format", "xml"], "possible values: text, json"),
        (
            &[
                "--otlp-endpoint",
                "http://127.0.0.1:1",
                "--otlp-sample",
                "1.5",
            ],
            "--otlp-sample: 1.5 is not between 0 and 1",
        ),
        (
            &[
                "--otlp-endpoint",
                "http://127.0.0.1:1",
                "--otlp-sample",
                "nan",
            ],
            "--otlp-sample: NaN is not between 0 and 1",
        ),
        (
            &["--otlp-endpoint", "https://127.0.0.1:1"],
            "--otlp-endpoint: ",
        ),
    ];
    for (args, want) in rows {
        let mut all = vec!["serve", "--config", config];
        all.extend(args);
        let (code, out, err) = run(&all);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains(want), "{args:?}: {err}");
    }
}
