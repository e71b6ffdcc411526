//! Arguments of the command line, and the commands that they select.

use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::client::Client;
#[cfg(feature = "etcd")]
use crate::config;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::{
    attach, check, completions, delete, drain, get, help, import, list, man, print, put, quota,
    raise, ready, serve, simulate, status, token, top,
};

const EXAMPLES: &str = "\
Examples:
  tollgate check tollgate.yaml
      Reports all errors of a configuration, with line, field and rule.
  tollgate serve --config tollgate.yaml
      Leases what the file says; listens on loopback unless the file says otherwise.
  tollgate top
      The busiest resources, live.
  tollgate put group gold --requests 20k && tollgate attach tenant acme gold
      Lets acme share 20000 requests per second with all others that are attached to gold.

Exit codes:
  0  done
  1  failed: no answer, or the coordinator could not
  2  wrong usage, configuration or input
  3  not found
  4  refused: no good token, or one whose role does not allow it
  5  conflict: changed meanwhile, still in use, or defined in the configuration file
  6  incomplete: done and printed, but a file of a report could not be written";

/// Leases the capacity of services to the Envoys in front of them.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lease capacity to Envoys until SIGTERM or SIGINT.
    ///
    /// When both ports are open one line goes to standard output, `tollgate ready grpc=<address>
    /// http=<address>`; logs go to standard error.
    #[command(after_help = serve::EXAMPLES)]
    Serve(serve::Serve),
    Check(check::Check),
    Import(import::Import),
    Simulate(simulate::Simulate),
    Status(status::Status),
    Ready(ready::Ready),
    Top(top::Top),
    Get(get::Get),
    List(list::List),
    Put(put::Put),
    Raise(raise::Raise),
    Unraise(raise::Unraise),
    Delete(delete::Delete),
    Attach(attach::Attach),
    Detach(delete::Detach),
    Drain(drain::Drain),
    Quota(quota::Quota),
    Token(token::Token),
    #[cfg(feature = "etcd")]
    Config(config::Shared),
    Completions(completions::Completions),
    Man(man::Man),
}

// === impl Cli ===

impl Cli {
    /// Reads the arguments of this process; ends it if they are wrong.
    pub(crate) fn of_process() -> Self {
        let arguments = Self::with_help().get_matches();
        Self::of(&arguments).unwrap_or_else(|error| error.exit())
    }

    /// The command line, with help that is specific to each command.
    pub(crate) fn with_help() -> clap::Command {
        help::specific(Self::command())
    }

    fn of(arguments: &ArgMatches) -> Result<Self, clap::Error> {
        let cli = Self::from_arg_matches(arguments);
        cli.map_err(|error| error.format(&mut Self::with_help()))
    }

    pub(crate) fn run(self) -> ExitCode {
        let Err(failure) = self.execute() else {
            return ExitCode::SUCCESS;
        };
        let (error, code) = failure.into_parts();
        print::note(&format!("{error:#}"));
        ExitCode::from(code)
    }

    fn execute(self) -> Result<(), Failure> {
        let json = self.connection.json;
        let client = || Client::new(&self.connection);
        match self.command {
            Command::Check(check) => check.run(&self.connection),
            Command::Import(import) => import.run(),
            Command::Simulate(simulate) => simulate.run(json),
            Command::Serve(serve) => serve.run(),
            Command::Token(token) => token.run(json),
            #[cfg(feature = "etcd")]
            Command::Config(shared) => shared.run(),
            Command::Completions(completions) => completions.run(),
            Command::Man(man) => man.run(),
            Command::Ready(ready) => ready.run(&client()?),
            Command::Status(status) => status.run(&client()?, json),
            Command::Top(top) => top.run(&client()?, json),
            Command::Get(get) => get.run(&client()?, json),
            Command::List(list) => list.run(&client()?, json),
            Command::Put(put) => put.run(&client()?, json),
            Command::Raise(raise) => raise.run(&client()?, json),
            Command::Unraise(unraise) => unraise.run(&client()?, json),
            Command::Delete(delete) => delete.run(&client()?, json),
            Command::Attach(attach) => attach.run(&client()?, json),
            Command::Detach(detach) => detach.run(&client()?, json),
            Command::Drain(drain) => drain.run(&client()?, json),
            Command::Quota(quota) => quota.run(&client()?, json),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command lines of tollgate in `text`, one a line, without what a shell makes of the rest.
    fn lines(text: &str) -> impl Iterator<Item = &str> {
        let lines = text.split(['\n', '|', ';', '&']).map(str::trim);
        let lines = lines.filter(|line| line.starts_with("tollgate "));
        lines.map(|line| line.split(['>', '#']).next().unwrap_or(line).trim())
    }

    #[track_caller]
    fn parses(line: &str) {
        let arguments = Cli::with_help().try_get_matches_from(line.split_whitespace());
        if let Err(error) = arguments.and_then(|arguments| Cli::of(&arguments)) {
            panic!("{line}: {error}");
        }
    }

    #[test]
    fn every_example_can_be_typed() {
        Cli::with_help().debug_assert();
        let mut examples = 0;
        for command in Cli::with_help().get_subcommands() {
            let help = command.get_after_help().unwrap().to_string();
            for line in lines(&help) {
                parses(line);
                examples += 1;
            }
        }
        assert!(examples > 25, "{examples}");
    }

    #[test]
    fn every_command_line_of_the_page_can_be_typed() {
        let page = include_str!("../../../docs/cli.md");
        let blocks = page.split("```sh").skip(1);
        let typed = blocks.filter_map(|block| block.split("```").next());
        let lines: Vec<&str> = typed.flat_map(lines).collect();
        assert!(lines.len() > 5, "{lines:?}");
        lines.into_iter().for_each(parses);
    }

    #[test]
    fn the_page_has_every_command_and_every_exit_code() {
        let page = include_str!("../../../docs/cli.md");
        let client = |name: &&str| !["serve", "help"].contains(name);
        let commands = Cli::with_help();
        for name in commands
            .get_subcommands()
            .map(|command| command.get_name())
            .filter(client)
        {
            assert!(page.contains(&format!("\n| `{name}")), "{name}");
        }
        let codes = EXAMPLES.split("Exit codes:\n").nth(1).unwrap().lines();
        let codes: Vec<_> = codes
            .map(|line| line.trim().split_once("  ").unwrap())
            .collect();
        assert_eq!(codes.len(), 7);
        for (code, meaning) in codes {
            let meaning = meaning.split(':').next().unwrap();
            let meaning = meaning.split(',').next().unwrap();
            assert!(
                page.contains(&format!("| {code} | {meaning}")),
                "{code} {meaning}"
            );
        }
    }
}
