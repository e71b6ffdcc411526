//! Help of each command: only the options of all commands that it has a use for.

use clap::{Arg, Command};

const API_JSON: &str = "Print JSON, as the API answers it";

/// Commands that talk to no coordinator.
const OFFLINE: [&str; 8] = [
    "serve",
    "check",
    "import",
    "simulate",
    "token",
    "config",
    "completions",
    "man",
];

/// Gives each subcommand of `command` the global options with the help that is true of it; those
/// that it has no use for are hidden.
pub(crate) fn specific(command: Command) -> Command {
    let options: Vec<Arg> = command
        .get_arguments()
        .filter(|option| option.is_global_set())
        .cloned()
        .collect();
    command.mut_subcommands(|subcommand| {
        let name = subcommand.get_name().to_owned();
        let options = options.iter().cloned();
        let options = options.map(|option| option_of(&name, option));
        subcommand.args(options)
    })
}

/// The global `option` as the command called `name` shows it.
fn option_of(name: &str, option: Arg) -> Arg {
    if option.get_id() != "json" {
        let option = option.help_heading("Which coordinator");
        return option.hide(OFFLINE.contains(&name));
    }
    let option = option.help_heading(None);
    match json(name) {
        Some(help) => option.help(help),
        None => option.hide(true),
    }
}

/// Help of `--json`; `None` for a command that prints none.
fn json(name: &str) -> Option<&'static str> {
    Some(match name {
        "check" => "Print errors and warnings, or with --scope the limits, as JSON",
        "simulate" => "Print figures, remarks and broken laws as JSON",
        "token" => "Print token, hash, name and role as JSON",
        "get" => "Print JSON, as the API answers it; of a scope with its limits",
        "top" => "Print JSON, as the API answers it; needs --once",
        "status" | "list" | "put" | "raise" | "unraise" | "delete" | "attach" | "detach"
        | "drain" | "quota" => API_JSON,
        _ => return None,
    })
}
