//! `tollgate put`: creates, changes or replaces.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use serde_json::{Value, json};

use crate::client::{Call, Client};
use crate::failure::Failure;
use crate::kind::{Kind, LIMITED, one_of};
use crate::print;

/// The largest definition that is read, in bytes.
const FILE_LEN_MAX: u64 = 1 << 20;

const EXAMPLES: &str = "\
Examples:
  tollgate put override tenant/zed --requests 50
      The rate alone: burst, concurrency and whatever else a pattern of the file gives zed are copied.
  tollgate put group gold --requests 20k --burst 40k --set concurrency.safe=5
      Fields by their path in the configuration; `--set concurrency=null` takes a limit away.
  tollgate put group gold -f gold.yaml --if-match 42
      All of it, as the file says, unless it has been changed meanwhile.
  tollgate put override tenant/zed --requests 50 --create
      Unless the scope has an override already.
  echo '{requests: {rate: 100, burst: 20}}' | tollgate put group silver -f -
      From standard input; YAML or JSON, as in the configuration.";

/// Create something, or change the fields that are named; with a file, replace all of it.
///
/// An override begins with the limits that the file gives the scope.
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
struct Definition {
    /// A file with the limits, YAML or JSON; `-` is standard input.
    #[arg(
        short,
        long,
        value_name = "FILE",
        conflicts_with_all = ["requests", "burst", "request_bytes", "response_bytes", "concurrency", "fair_between", "set"]
    )]
    file: Option<PathBuf>,

    #[command(flatten)]
    fields: FieldOptions,

    /// First division of a group's capacity: between `members` or `clients`.
    #[arg(long, value_name = "UNIT")]
    fair_between: Option<String>,
}

/// Fields of limits.
#[derive(Debug, Args)]
pub(crate) struct FieldOptions {
    /// Requests per second, such as `1000`, `1.5k` or `unlimited`.
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    requests: Option<String>,

    /// Requests at once after a pause, such as `2k`.
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true)]
    burst: Option<String>,

    /// Bytes of request bodies per second, such as `50MiB`.
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    request_bytes: Option<String>,

    /// Bytes of response bodies per second, such as `50MiB`.
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    response_bytes: Option<String>,

    /// Requests in flight.
    #[arg(long, value_name = "MAX", allow_negative_numbers = true)]
    concurrency: Option<String>,

    /// Any field, by its path: `concurrency.safe=5`, `requests.guaranteed.3=100`; `null` takes it away.
    #[arg(long, value_name = "FIELD=VALUE", value_parser = field)]
    set: Vec<(String, Value)>,
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
        let call = match &self.definition.file {
            Some(file) => Call::put(path, read(file).map_err(Failure::usage)?),
            None => Call::patch(path, self.definition.fields().map_err(Failure::usage)?),
        };
        let is_whole = self.definition.file.is_some();
        let reply = client.send(self.condition.apply(call));
        let reply = reply.map_err(|failure| failure.about(kind.name(), &self.name))?;
        if as_json {
            return print::json(&reply.body);
        }
        let done = match reply.status.as_u16() {
            201 => "created",
            _ if is_whole => "replaced",
            _ => "changed",
        };
        let note = if self.is_of_unknown_scope(client) {
            " (no Envoy has or wants a lease of it)"
        } else {
            ""
        };
        let name = print::plain(&self.name);
        print::lines(&format!("{} {name} {done}{note}", kind.name()))
    }

    /// Whether it is an override of a scope that no Envoy has or wants a lease of: its name may be misspelt.
    fn is_of_unknown_scope(&self, client: &Client) -> bool {
        if self.kind != Kind::Override {
            return false;
        }
        let scope = Kind::Scope.one(&self.name).map(Call::get);
        let answer = scope.and_then(|call| client.send(call));
        matches!(answer, Err(Failure::Missing(_)))
    }
}

// === impl Definition ===

impl Definition {
    /// The fields that the options name.
    fn fields(&self) -> anyhow::Result<Value> {
        let between = self.fair_between.as_ref();
        let between = between.map(|word| ("fair_between", json!(word)));
        merged(self.fields.named().chain(between))
    }
}

// === impl FieldOptions ===

impl FieldOptions {
    /// The fields that the options name.
    pub(crate) fn fields(&self) -> anyhow::Result<Value> {
        merged(self.named())
    }

    /// Paths of fields, with their values.
    fn named(&self) -> impl Iterator<Item = (&str, Value)> {
        let named = [
            ("requests.rate", &self.requests),
            ("requests.burst", &self.burst),
            ("request_bytes.rate", &self.request_bytes),
            ("response_bytes.rate", &self.response_bytes),
            ("concurrency.max", &self.concurrency),
        ];
        let named = named.into_iter();
        let named = named.filter_map(|(path, text)| Some((path, json!(text.as_ref()?))));
        let set = self.set.iter();
        named.chain(set.map(|(path, value)| (path.as_str(), value.clone())))
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

/// Reads `FIELD=VALUE`.
fn field(text: &str) -> Result<(String, Value), String> {
    let (path, value) = text.split_once('=').ok_or("is not FIELD=VALUE")?;
    if path.split('.').any(str::is_empty) {
        return Err(format!("{path:?} is no path such as requests.burst"));
    }
    let value = match value {
        "null" => Value::Null,
        text => json!(text),
    };
    Ok((path.to_owned(), value))
}

/// Returns an object with these fields, of which there must be one, and none within another.
fn merged<'a>(fields: impl Iterator<Item = (&'a str, Value)>) -> anyhow::Result<Value> {
    let mut whole = json!({});
    let mut paths: Vec<&str> = Vec::new();
    for (path, value) in fields {
        let is_within = |inner: &str, outer: &str| {
            let rest = inner.strip_prefix(outer);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let other = paths
            .iter()
            .find(|other| is_within(path, other) || is_within(other, path));
        if let Some(other) = other {
            anyhow::bail!("{other} and {path} are both set");
        }
        paths.push(path);
        set(&mut whole, path, value);
    }
    anyhow::ensure!(
        !paths.is_empty(),
        "no field is named, such as --requests or --set FIELD=VALUE"
    );
    Ok(whole)
}

/// Sets the field at `path` in `fields`, with the objects around it.
fn set(fields: &mut Value, path: &str, value: Value) {
    let mut place = fields;
    for step in path.split('.') {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[step];
    }
    *place = value;
}

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
