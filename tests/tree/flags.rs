//! The reference of the command line, `docs/flags.md`, is what the types of `src/config/flags.rs` generate.

use std::{collections::BTreeMap, fs};

use clap::{Arg, Command, CommandFactory};
use compute_operator::config::Flags;

use super::{
    manifests::{objects, of_kind},
    root,
};

const PAGE: &str = "docs/flags.md";
/// What a help text says of a default that clap does not know.
const DEFAULT: &str = " [default: ";

const HEAD: &str = "# Flags

Generated from `src/config/flags.rs`, whose words `compute-operator --help` has too; a test compares. What the Go operator's
spellings mean here, and what a flag of its has become, is in [configuration](configuration.md#flags-of-the-go-operator).

A flag takes its value as `--flag=VALUE`; where the value stands in brackets, the flag alone means `true`, and a value needs the `=`.
The operator reads no flag from its environment: the Deployment of `config/base/manager` gives some of them as
`--flag=$(VARIABLE)`, so that an overlay sets the variable. An empty file or name is as good as none.
";

/// Flags that the manifests give, each with its variable.
fn variables() -> BTreeMap<String, String> {
    let objects = objects("single-cluster");
    let args = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0]["args"];
    let given = args.as_array().unwrap().iter().map(|arg| {
        let (flag, variable) = arg.as_str().unwrap().split_once("=$(").unwrap();
        (flag.to_owned(), variable.trim_end_matches(')').to_owned())
    });
    given.collect()
}

/// A sentence for each value that a flag takes, where these are few.
fn values(arg: &Arg) -> String {
    let of = |value: &clap::builder::PossibleValue| {
        let help = value.get_help().map(|help| format!(": {help}")).unwrap_or_default();
        format!(" `{}`{help}.", value.get_name())
    };
    arg.get_possible_values().iter().map(of).collect()
}

/// The row of a flag.
fn row(arg: &Arg, variables: &BTreeMap<String, String>) -> String {
    let flag = format!("--{}", arg.get_long().unwrap());
    let value = arg.get_value_names().map(|names| names[0].to_string()).filter(|_| arg.get_action().takes_values());
    let alone = arg.get_num_args().is_some_and(|number| number.min_values() == 0);
    let shown = match value {
        Some(value) if alone => format!("{flag}[={value}]"),
        Some(value) => format!("{flag}={value}"),
        None => flag.clone(),
    };
    let former = arg.get_all_aliases().unwrap_or_default().into_iter().map(|name| format!(", `--{name}`"));
    let help = arg.get_help().unwrap_or_else(|| panic!("{flag}: what is it?")).to_string().replace('\n', " ");
    let (meaning, default) = match help.split_once(DEFAULT) {
        Some((meaning, default)) => (meaning.to_owned(), default.trim_end_matches(']').to_owned()),
        None if arg.is_required_set() => (help, "none: it must be given".to_owned()),
        None => (help, String::new()),
    };
    let given = arg.get_default_values().iter().map(|value| value.to_str().unwrap()).filter(|value| !value.is_empty());
    let default = given.map(|value| format!("`{value}`")).next().unwrap_or(default);
    let variable = variables.get(&flag).map(|name| format!("`{name}`")).unwrap_or_default();
    let meaning = format!("{}.{}", meaning.trim_end_matches('.'), values(arg));
    format!("| `{shown}`{} | {default} | {variable} | {meaning} |\n", former.collect::<String>())
}

/// A table of the flags of a command: those that `--help` shows, or those that it hides.
fn table(command: &Command, hidden: bool, variables: &BTreeMap<String, String>) -> String {
    let rows: String = command
        .get_arguments()
        .filter(|arg| arg.is_hide_set() == hidden && arg.get_long().is_some())
        .map(|arg| row(arg, variables))
        .collect();
    format!("\n| flag | default | variable of the manifests | meaning |\n|---|---|---|---|\n{rows}")
}

/// A section for each command that does something by itself.
fn commands(command: &Command, before: &str) -> String {
    let others = command.get_subcommands().filter(|command| command.get_name() != "help");
    let section = |command: &Command| {
        let name = format!("{before} {}", command.get_name());
        if command.has_subcommands() {
            return commands(command, &name);
        }
        let about = command.get_about().unwrap_or_else(|| panic!("{name}: what is it?"));
        format!("\n## `{name}`\n\n{about}.\n{}", table(command, false, &BTreeMap::new()))
    };
    others.map(section).collect()
}

/// The page.
fn page() -> String {
    let (command, variables) = (Flags::command(), variables());
    let known: Vec<String> =
        command.get_arguments().filter_map(Arg::get_long).map(|flag| format!("--{flag}")).collect();
    for flag in variables.keys() {
        assert!(known.contains(flag), "the manifests give {flag}, which nobody knows");
    }
    let (shown, hidden) = (table(&command, false, &variables), table(&command, true, &variables));
    let others = commands(&command, "compute-operator");
    format!("{HEAD}{shown}\n## Taken without effect\n{hidden}{others}")
}

#[test]
fn the_reference_of_flags_is_what_the_types_generate() {
    let (wanted, file) = (page(), root().join(PAGE));
    if std::env::var_os("WRITE_FLAGS").is_some() {
        fs::write(&file, &wanted).unwrap();
    }
    let stands = fs::read_to_string(file).unwrap_or_default();
    assert!(stands == wanted, "{PAGE}: run `WRITE_FLAGS=1 cargo test --test tree flags` and commit what it writes");
    // The reader itself sees flags, their former names, values, and what `--help` hides.
    for part in [
        "| `--federation-kubeconfig=FILE`, `--downstream-kubeconfig`, `--karmada-kubeconfig` |  | `FEDERATION_KUBECONFIG` |",
        "| `--leader-elect[=BOOL]` | `false` | `LEADER_ELECT` | Work only while holding the Lease. |",
        "| `--zap-encoder=FORM` | json |  | Form of the logs. `console`: For people. `json`: For machines",
        "| `--instance-type-default=NAME` |",
        "\n## `compute-operator migration status`\n",
    ] {
        assert!(wanted.contains(part), "{part}: {wanted}");
    }
}

#[test]
fn pages_for_whoever_runs_the_operator_lead_to_the_reference_of_flags() {
    for (page, link) in [
        ("README.md", "](docs/flags.md)"),
        ("docs/configuration.md", "](flags.md)"),
        ("docs/deploying.md", "](flags.md)"),
    ] {
        assert!(fs::read_to_string(root().join(page)).unwrap().contains(link), "{page}");
    }
}
