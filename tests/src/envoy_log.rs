//! Lines of an Envoy's log that should not be there while all is well.

/// Arguments by which Envoy logs all that the filter says, at any level.
pub const FILTER_LEVELS: &str = "wasm:debug,dynamic_modules:debug";

/// Beginning of the end of a log: Envoy warns that it was asked to end. What the filter says then is about its own end.
const ENDING: &str = "caught ENVOY_SIGTERM";
/// Parts of lines that Envoy writes although nothing is wrong, each with its reason.
const HARMLESS: [(&str, &str); 1] = [(ENDING, "the test asked it to end")];
/// Levels below a warning.
const QUIET: [&str; 3] = ["trace", "debug", "info"];

/// Returns the first line of a log that should not be there: from warnings on, or of the filter at any level.
pub fn complaint(log: &str) -> Option<&str> {
    let is_harmless = |line: &str| HARMLESS.iter().any(|(part, _)| line.contains(part));
    let mut is_ending = false;
    log.lines().find(|line| {
        is_ending |= line.contains(ENDING);
        let is_of_filter = line.contains("wasm log") || line.contains("] tollgate: ");
        let is_quiet = QUIET.contains(&level(line)) && (is_ending || !is_of_filter);
        !is_quiet && !is_harmless(line)
    })
}

/// The level of a line: `[time][thread][level][component] [source] message`.
fn level(line: &str) -> &str {
    line.split("][").nth(2).unwrap_or_default()
}

#[test]
fn warnings_and_all_lines_of_the_filter_are_complaints() {
    let line = |level: &str, component: &str, message: &str| {
        format!("[2025-11-28 10:00:00.001][7][{level}][{component}] [source/a.cc:1] {message}")
    };
    let end = line("warning", "main", ENDING);
    let gone = line(
        "debug",
        "dynamic_modules",
        "tollgate: the last one has gone",
    );
    let rows = [
        (line("debug", "wasm", "Thread-Local Wasm created"), false),
        (line("info", "config", "done"), false),
        (line("warning", "config", "deprecated"), true),
        (line("critical", "main", "error"), true),
        (
            line("debug", "wasm", "wasm log tollgate: a refresh failed"),
            true,
        ),
        (gone.clone(), true),
        ("a line without a level".to_owned(), true),
        (format!("{end}\n{gone}"), false),
        (format!("{end}\n{}", line("error", "wasm", "trap")), true),
    ];
    for (log, is_complaint) in rows {
        assert_eq!(complaint(&log).is_some(), is_complaint, "{log}");
    }
}
