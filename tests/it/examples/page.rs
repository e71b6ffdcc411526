//! Pages of the documentation with commands to copy: blocks of `sh`, each perhaps followed by a block of `text`
//! with what its commands print.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

/// A command of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The command, one or more lines.
    pub(crate) command: String,
    /// Whether it is the first of its block.
    pub(crate) first: bool,
    /// Lines that the page shows after it, of the output of its block up to it.
    pub(crate) shown: Vec<String>,
}

/// Returns the steps of a page.
pub(crate) fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut kind = None;
    let mut first = false;
    for line in page.lines().map(str::trim_start) {
        match (kind, line.strip_prefix("```"), steps.last_mut()) {
            (None, Some(name), _) => (kind, first) = (Some(name), true),
            (Some(_), Some(_), _) => kind = None,
            (Some("sh"), None, Some(last)) if last.command.ends_with('\\') => {
                last.command.push('\n');
                last.command.push_str(line);
            }
            (Some("sh"), None, _) => {
                steps.push(Step::new(line, first));
                first = false;
            }
            (Some("text"), None, Some(last)) => last.shown.push(line.to_owned()),
            _ => {}
        }
    }
    steps
}

// === impl Step ===

impl Step {
    fn new(command: &str, first: bool) -> Self {
        Self {
            command: command.to_owned(),
            first,
            shown: Vec::new(),
        }
    }

    /// Checks that `output` has each line that the page shows, apart from numbers. Of a line of status codes the
    /// same codes are expected, in any number.
    ///
    /// # Errors
    /// When a line is missing.
    pub(crate) fn check(&self, output: &str) -> Result<()> {
        let forms: BTreeSet<String> = output.lines().map(form).collect();
        for line in &self.shown {
            let missing = !forms.contains(&form(line));
            ensure!(
                !missing,
                "`{}` does not print a line like\n{line}\nbut\n{output}",
                self.command
            );
        }
        Ok(())
    }
}

/// Form of a line: its words, with `#` for each number and without bars; of status codes each once, and a status
/// line as it is.
fn form(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    if line.starts_with("HTTP/") {
        return words.join(" ");
    }
    if words.iter().all(|word| is_status(word)) {
        let codes: BTreeSet<&str> = words.into_iter().collect();
        return codes.into_iter().collect::<Vec<_>>().join(" ");
    }
    let mut masked = String::new();
    let mut number = false;
    for c in words.join(" ").chars() {
        let goes_on = c.is_ascii_digit() || number && c == '.';
        if !goes_on && !matches!(c, '█' | '▒' | '!') {
            masked.push(c);
        } else if goes_on && !number {
            masked.push('#');
        }
        number = goes_on;
    }
    masked.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_status(word: &str) -> bool {
    word.len() == 3 && word.starts_with(['2', '4', '5']) && word.parse::<u16>().is_ok()
}

#[test]
fn steps_are_read_from_blocks_with_the_output_behind() {
    let page = "# Page\n```sh\none &\nfor x in 1 2; do \\\n  two; done\n```\nThis prints\n\n  ```text\n  \
                200 429\n  tail\n  ```\n```json\n{}\n```\n```sh\nthree\n```\n";
    let step = |command: &str, first: bool, shown: &[&str]| Step {
        shown: shown.iter().map(ToString::to_string).collect(),
        ..Step::new(command, first)
    };
    let expected = [
        step("one &", true, &[]),
        step(
            "for x in 1 2; do \\\ntwo; done",
            false,
            &["200 429", "tail"],
        ),
        step("three", true, &[]),
    ];
    assert_eq!(steps(page), expected);
}

#[test]
fn shown_lines_match_apart_from_numbers_and_the_number_of_status_codes() {
    let rows = [
        ("200 200 429", "200 429 429 429 ", true),
        ("200 200 429", "200 200", false),
        ("200", "429", false),
        ("HTTP/1.1 429 Too Many Requests", "HTTP/1.1 200 OK\r", false),
        ("tollgate-pause-ms: 69", "tollgate-pause-ms: 1234\r", true),
        ("a/b  1  1.5  ████! 2876 %", "a/b 12 0 █▒ 5 %", true),
        ("reason: a/requests", "reason: b/requests", false),
        ("LIVE", "LIVE and more", false),
    ];
    for (shown, output, matches) in rows {
        let step = Step {
            shown: vec![shown.to_owned()],
            ..Step::new("command", true)
        };
        let output = format!("before\n{output}\nafter\n");
        assert_eq!(step.check(&output).is_ok(), matches, "{shown}: {output}");
    }
}
