//! `docs/flags.md` is generated from the types of `src/config/flags.rs`.

use std::{collections::BTreeMap, fs};

use clap::{Arg, Command, CommandFactory};
use compute_operator::config::Flags;

use super::{
    manifests::{objects, of_kind},
    root,
};

const PAGE: &str = "docs/flags.md";
/// Marks the default in a help text, for a default that clap does not know.
const DEFAULT: &str = " [default: ";

const HEAD: &str = "# Flags

Generated from `src/config/flags.rs`, whose words `compute-operator --help` has too; a test compares. What the Go operator's
spellings mean here, and what a flag of its has become, is in [configuration](configuration.md#flags-of-the-go-operator).

A flag takes its value as `--flag=VALUE`; where the value stands in brackets, the flag alone means `true`, and a value needs the `=`.
The operator reads no flag from its environment: the Deployment of `config/base/manager` gives some of them as
`--flag=$(VARIABLE)`, so that an overlay sets the variable. An empty file or name is as good as none.
";

/// Flags that the manifests set, each with its variable.
fn variables() -> BTreeMap<String, String> {
    let objects = objects("single-cluster");
    let args = &of_kind(&objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0]["args"];
    let given = args.as_array().unwrap().iter().map(|arg| {
        let (flag, variable) = arg.as_str().unwrap().split_once("=$(").unwrap();
        (flag.to_owned(), variable.trim_end_matches(')').to_owned())
    });
    given.collect()
}

/// Returns one sentence for each value of a flag that takes a fixed set of values.
fn values(arg: &Arg) -> String {
    let of = |value: &clap::builder::PossibleValue| {
        let help = value.get_help().map(|help| format!(": {help}")).unwrap_or_default();
        format!(" `{}`{help}.", value.get_name())
    };
    arg.get_possible_values().iter().map(of).collect()
}

/// Returns the table row of a flag.
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
    let help = arg.get_help().unwrap_or_else(|| panic!("{flag} has no help")).to_string().replace('\n', " ");
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

/// Returns the table of a command's flags: the flags that `--help` shows, or the hidden ones.
fn table(command: &Command, hidden: bool, variables: &BTreeMap<String, String>) -> String {
    let rows: String = command
        .get_arguments()
        .filter(|arg| arg.is_hide_set() == hidden && arg.get_long().is_some())
        .map(|arg| row(arg, variables))
        .collect();
    format!("\n| flag | default | variable of the manifests | meaning |\n|---|---|---|---|\n{rows}")
}

/// Returns a section for each subcommand.
fn commands(command: &Command, before: &str) -> String {
    let others = command.get_subcommands().filter(|command| command.get_name() != "help");
    let section = |command: &Command| {
        let name = format!("{before} {}", command.get_name());
        if command.has_subcommands() {
            return commands(command, &name);
        }
        let about = command.get_about().unwrap_or_else(|| panic!("{name} has no description"));
        let has_flags = command.get_arguments().any(|arg| arg.get_long().is_some());
        let flags = if has_flags { table(command, false, &BTreeMap::new()) } else { String::new() };
        format!("\n## `{name}`\n\n{about}.\n{flags}")
    };
    others.map(section).collect()
}

/// Returns the whole page.
fn page() -> String {
    let (command, variables) = (Flags::command(), variables());
    let known: Vec<String> =
        command.get_arguments().filter_map(Arg::get_long).map(|flag| format!("--{flag}")).collect();
    for flag in variables.keys() {
        assert!(known.contains(flag), "the manifests set the unknown flag {flag}");
    }
    let (shown, hidden) = (table(&command, false, &variables), table(&command, true, &variables));
    let others = commands(&command, "compute-operator");
    format!("{HEAD}{shown}\n## Taken without effect\n{hidden}{others}")
}

#[test]
fn flags_page_equals_what_the_types_generate() {
    let (wanted, file) = (page(), root().join(PAGE));
    if std::env::var_os("WRITE_FLAGS").is_some() {
        fs::write(&file, &wanted).unwrap();
    }
    let stands = fs::read_to_string(file).unwrap_or_default();
    assert!(stands == wanted, "{PAGE}: run `WRITE_FLAGS=1 cargo test --test tree flags` and commit what it writes");
    // The test itself finds flags, former names, values and hidden flags.
    for part in [
        "| `--federation-kubeconfig=FILE`, `--downstream-kubeconfig`, `--karmada-kubeconfig` |  | `FEDERATION_KUBECONFIG` |",
        "| `--leader-elect[=BOOL]` | `false` | `LEADER_ELECT` | Reconcile only while holding the Lease. |",
        "| `--zap-encoder=FORM` | json |  | Format of the logs. `console`: Text for people. `json`: One JSON object per line.",
        "| `--instance-type-default=NAME` |",
        "\n## `compute-operator reasons`\n\nPrint the page of all reasons",
        "\n## `compute-operator migration status`\n",
    ] {
        assert!(wanted.contains(part), "{part}: {wanted}");
    }
}

#[test]
fn operator_pages_link_to_the_flags_page() {
    for (page, link) in [
        ("README.md", "](docs/flags.md)"),
        ("docs/configuration.md", "](flags.md)"),
        ("docs/deploying.md", "](flags.md)"),
    ] {
        assert!(fs::read_to_string(root().join(page)).unwrap().contains(link), "{page}");
    }
}
