//! `tollgate put`: creates or replaces.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::client::{Call, Client};
use crate::failure::Failure;
use crate::kind::{Kind, LIMITED, one_of};
use crate::print;

/// The largest definition that is read, in bytes.
const FILE_LEN_MAX: u64 = 1 << 20;

const EXAMPLES: &str = "\
Examples:
  tollgate put group gold --requests 20k --concurrency 500
      A group with two limits, and no other.
  tollgate put group gold -f gold.yaml --if-match 42
      As the file says, unless it has been changed meanwhile.
  tollgate put override tenant/acme --requests 50 --create
      Limits for one scope, unless it has some already.
  echo '{requests: {rate: 100, burst: 20}}' | tollgate put group silver -f -
      From standard input; YAML or JSON, as in the configuration.";

/// Create something, or replace all of it.
///
/// A unit without an option has no limit: this does not change single fields.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Put {
    /// The kind.
    #[arg(value_parser = one_of(LIMITED))]
    kind: Kind,

    /// The group's name, or the scope's id.
    name: String,

    #[command(flatten)]
    definition: Definition,

    #[command(flatten)]
    condition: Condition,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct Definition {
    /// A file with the limits, YAML or JSON; `-` is standard input.
    #[arg(
        short,
        long,
        value_name = "FILE",
        conflicts_with_all = ["requests", "request_bytes", "response_bytes", "concurrency", "fair_between"]
    )]
    file: Option<PathBuf>,

    /// Requests per second, such as `1000`, `1.5k` or `unlimited`.
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    requests: Option<String>,

    /// Bytes of request bodies per second, such as `50MiB`.
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    request_bytes: Option<String>,

    /// Bytes of response bodies per second, such as `50MiB`.
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    response_bytes: Option<String>,

    /// Requests in flight.
    #[arg(long, value_name = "MAX", allow_negative_numbers = true)]
    concurrency: Option<String>,

    /// First division of a group's capacity: between `members` or `clients`.
    #[arg(long, value_name = "UNIT")]
    fair_between: Option<String>,
}

/// Condition of a write.
#[derive(Debug, Args)]
pub(crate) struct Condition {
    /// Only if it still has this revision, as `get` shows it; `*` only if it is there.
    #[arg(long, value_name = "REVISION")]
    if_match: Option<String>,

    /// Only if it is not there yet.
    #[arg(long, conflicts_with = "if_match")]
    create: bool,
}

// === impl Put ===

impl Put {
    pub(crate) fn run(self, client: &Client, as_json: bool) -> Result<(), Failure> {
        let kind = self.kind;
        let path = kind.one(&self.name)?;
        let body = self.definition.body().map_err(Failure::usage)?;
        let reply = client.send(self.condition.apply(Call::put(path, body)));
        let reply = reply.map_err(|failure| failure.about(kind, &self.name))?;
        if as_json {
            return print::json(&reply.body);
        }
        let done = match reply.status.as_u16() {
            201 => "created",
            _ => "replaced",
        };
        print::lines(&format!(
            "{} {} {done}",
            kind.name(),
            print::plain(&self.name)
        ))
    }
}

// === impl Definition ===

impl Definition {
    fn body(&self) -> anyhow::Result<Value> {
        if let Some(file) = &self.file {
            return read(file);
        }
        let mut body = Map::new();
        let rates = [
            ("requests", &self.requests),
            ("request_bytes", &self.request_bytes),
            ("response_bytes", &self.response_bytes),
        ];
        for (unit, rate) in rates {
            if let Some(rate) = rate {
                body.insert(unit.to_owned(), json!({ "rate": rate }));
            }
        }
        if let Some(max) = &self.concurrency {
            body.insert("concurrency".to_owned(), json!({ "max": max }));
        }
        if let Some(word) = &self.fair_between {
            body.insert("fair_between".to_owned(), json!(word));
        }
        Ok(body.into())
    }
}

// === impl Condition ===

impl Condition {
    /// `call` under this condition.
    pub(crate) fn apply(&self, call: Call) -> Call {
        if self.create {
            return call.if_absent();
        }
        call.if_match(self.if_match.as_deref())
    }
}

// === free functions ===

/// The object that `file` holds.
fn read(file: &Path) -> anyhow::Result<Value> {
    let name = || file.display().to_string();
    let mut text = String::new();
    if file == Path::new("-") {
        let stdin = std::io::stdin().lock();
        stdin.take(FILE_LEN_MAX + 1).read_to_string(&mut text)
    } else {
        let open = std::fs::File::open(file).with_context(name)?;
        open.take(FILE_LEN_MAX + 1).read_to_string(&mut text)
    }
    .with_context(name)?;
    anyhow::ensure!(
        text.len() as u64 <= FILE_LEN_MAX,
        "{}: has more than {FILE_LEN_MAX} bytes",
        name()
    );
    let value: Value = parse(&text).with_context(name)?;
    if !value.is_object() {
        return Err(anyhow!("{}: is no mapping of units to limits", name()));
    }
    Ok(value)
}

/// JSON is almost YAML, but not where it is indented with tabs.
fn parse(text: &str) -> anyhow::Result<Value> {
    if text.trim_start().starts_with('{')
        && let Ok(value) = serde_json::from_str(text)
    {
        return Ok(value);
    }
    Ok(serde_saphyr::from_str(text)?)
}
