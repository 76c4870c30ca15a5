//! The commands of reasons, alerts, runbooks and platform pages: an API server with all definitions understands each of them, or the program
//! `kubectl compute` does.

use std::{collections::BTreeSet, fs};

use clap::Parser;
use compute_operator::api::reason::Reason;
use kubectl_compute::flags::Flags;

use super::{
    monitoring::commands_of_alerts,
    pages::{runbooks, under},
    root,
    served::Server,
};

/// Commands that start another program than kubectl, or need pods. They are run by hand.
const BY_HAND: [&str; 7] = [
    "curl -s localhost:8081/readyz",
    "karmadactl --karmada-context HUB uncordon CLUSTER",
    "karmadactl --karmada-context HUB unjoin CLUSTER",
    // Open an editor.
    "kubectl --context HUB -n HUB_NAMESPACE edit resourcebinding NAME",
    "kubectl -n NAMESPACE edit workloads.compute.datumapis.com NAME",
    // The overlay is applied by another test, which also makes this token.
    "kubectl --context HUB -n compute-system create token compute-manager --duration=720h",
    "kubectl kustomize config/overlays/hub | kubectl --context HUB apply --server-side --force-conflicts --filename -",
];

/// Verbs of commands that change something.
const WRITES: [&str; 4] = ["label", "annotate", "delete", "apply"];

/// Returns the commands of a page that name a control plane by its context, and those of `kubectl compute`.
fn typed(page: &str) -> Vec<String> {
    let of_blocks = page.lines().filter(|line| line.starts_with("    ")).map(|line| {
        let line = line.trim_start();
        line.strip_prefix("$ ").unwrap_or(line)
    });
    let of_prose =
        page.lines().filter(|line| !line.starts_with("    ")).flat_map(|line| line.split('`').skip(1).step_by(2));
    // A span such as `kubectl compute cell join` names the command.
    let is_whole = |command: &&str| command.contains(" --");
    let commands = of_blocks.chain(of_prose).filter(is_whole);
    let known = ["kubectl --context ", "kubectl compute "];
    commands.filter(|command| known.iter().any(|begin| command.starts_with(begin))).map(str::to_owned).collect()
}

/// Splits a command into words as a shell does, up to the first pipe.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in command.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '|' | '\\') => break,
            (None, ' ') => words.push(std::mem::take(&mut word)),
            (_, c) => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the arguments of a command for an API server that has no object of the names in it.
fn arguments(command: &str) -> Vec<String> {
    let command = command.strip_prefix("kubectl ").expect("it is kubectl's");
    let mut arguments = Vec::new();
    let mut words = words(command).into_iter().filter(|word| word != "--watch");
    while let Some(word) = words.next() {
        if word == "--context" {
            words.next();
        } else if word == "$NS" {
            arguments.push("hub-namespace".to_owned());
        } else if word.contains('=') && !word.contains('/') {
            arguments.push(word);
        } else {
            let is_placeholder = word.chars().any(|c| c.is_ascii_uppercase()) && !word.starts_with('-');
            arguments.push(if is_placeholder { word.to_lowercase().replace('_', "-") } else { word });
        }
    }
    if arguments.iter().any(|word| WRITES.contains(&word.as_str())) {
        arguments.push("--dry-run=server".to_owned());
    }
    arguments
}

#[test]
fn command_becomes_arguments_without_context_and_placeholders() {
    let command = "kubectl --context HUB -n HUB_NAMESPACE label cluster CLUSTER topology.datum.net/city-code=CITY";
    let wanted = "-n hub-namespace label cluster cluster topology.datum.net/city-code=city --dry-run=server";
    assert_eq!(arguments(command).join(" "), wanted);
    let command = "kubectl --context HUB -n $NS get wd --watch -o custom-columns='A B:.c,D:.e' | grep x";
    assert_eq!(arguments(command), ["-n", "hub-namespace", "get", "wd", "-o", "custom-columns=A B:.c,D:.e"]);
}

/// Returns what `kubectl compute` says against a command. `None` if it understands the command.
fn refused_by_plugin(command: &str) -> Option<String> {
    let words = ["kubectl-compute".to_owned()].into_iter().chain(words(command.strip_prefix("kubectl compute ")?));
    Flags::try_parse_from(words).err().filter(clap::Error::use_stderr).map(|error| error.to_string())
}

#[test]
fn wrong_command_of_the_plugin_is_found() {
    assert_eq!(refused_by_plugin("kubectl compute cell drain CLUSTER --hub-context HUB"), None);
    assert!(refused_by_plugin("kubectl compute cell drain --hub-context HUB").is_some());
    assert!(refused_by_plugin("kubectl compute cell fly CLUSTER").is_some());
}

#[tokio::test]
async fn every_command_of_reasons_alerts_and_runbooks_is_understood() {
    let server = Server::start().await;
    server.define_kinds().await;
    let of_reasons = Reason::ALL.iter().filter_map(|reason| Some((reason.to_string(), reason.entry()?)));
    let of_reasons =
        of_reasons.flat_map(|(name, entry)| entry.commands().map(move |one| (name.clone(), one.to_owned())));
    let mut pages = runbooks();
    pages.push(root().join("docs/migrating-from-go.md"));
    under(&root().join("docs/platform"), "md", &mut pages);
    let pages = pages.into_iter();
    let of_runbooks = pages.flat_map(|file| {
        let page = fs::read_to_string(&file).unwrap();
        typed(&page).into_iter().map(move |command| (file.display().to_string(), command)).collect::<Vec<_>>()
    });
    let all: Vec<(String, String)> = of_reasons.chain(commands_of_alerts()).chain(of_runbooks).collect();
    let (mut by_hand, mut asked, mut of_plugin) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (name, command) in &all {
        if command.starts_with("kubectl compute ") {
            assert_eq!(refused_by_plugin(command), None, "{name}: {command}");
            of_plugin.insert(command);
            continue;
        }
        if let Some(known) = BY_HAND.iter().find(|known| *known == command) {
            by_hand.insert(*known);
            continue;
        }
        if !asked.insert(command) {
            continue;
        }
        let arguments = arguments(command);
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let said = server.kubectl(&words, "");
        // Nothing of these names exists. A kind that does not exist, or a wrong flag, has other words.
        let is_understood = said.as_ref().map_or_else(|why| why.contains("(NotFound)"), |_| true);
        assert!(is_understood, "{name}: {command}: {said:?}");
    }
    assert_eq!(by_hand, BTreeSet::from(BY_HAND), "each of them is asked for");
    assert!(asked.len() > 90, "{}", asked.len());
    assert!(of_plugin.len() > 5, "{of_plugin:?}");
}
