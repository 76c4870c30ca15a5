//! The commands of reasons and alerts: an API server with all definitions understands each of them.

use std::collections::BTreeSet;

use compute_operator::api::reason::Reason;

use super::{monitoring::commands_of_alerts, served::Server};

/// Commands that start another program than kubectl, or need pods. They are run by hand.
const BY_HAND: [&str; 7] = [
    "curl -s localhost:8081/readyz",
    "karmadactl --kubeconfig HUB uncordon CLUSTER",
    "karmadactl --kubeconfig HUB unjoin CLUSTER",
    // Open an editor.
    "kubectl --kubeconfig HUB -n HUB_NAMESPACE edit resourcebinding NAME",
    "kubectl -n NAMESPACE edit workloads.compute.datumapis.com NAME",
    // The overlay is applied by another test, which also makes this token.
    "kubectl --kubeconfig HUB -n compute-system create token compute-manager --duration=720h",
    "kubectl kustomize config/overlays/hub | kubectl --kubeconfig HUB apply --server-side --filename -",
];

/// Verbs of commands that change something.
const WRITES: [&str; 4] = ["label", "annotate", "delete", "apply"];

/// Returns the arguments of a command for an API server that has no object of the names in it.
fn arguments(command: &str) -> Vec<String> {
    let words = command.strip_prefix("kubectl ").expect("it is kubectl's").split(' ');
    let mut arguments = Vec::new();
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        if word == "--kubeconfig" {
            words.next();
        } else {
            let is_placeholder = word.chars().any(|c| c.is_ascii_uppercase()) && !word.starts_with('-');
            arguments.push(if is_placeholder && !word.contains("reason=") {
                word.to_lowercase().replace('_', "-")
            } else {
                word.to_owned()
            });
        }
    }
    if arguments.iter().any(|word| WRITES.contains(&word.as_str())) {
        arguments.push("--dry-run=server".to_owned());
    }
    arguments
}

#[test]
fn command_becomes_arguments_without_kubeconfig_and_placeholders() {
    let command = "kubectl --kubeconfig HUB -n HUB_NAMESPACE label cluster CLUSTER topology.datum.net/city-code=CITY";
    let wanted = "-n hub-namespace label cluster cluster topology.datum.net/city-code=city --dry-run=server";
    assert_eq!(arguments(command).join(" "), wanted);
}

#[tokio::test]
async fn api_server_understands_every_command_of_reasons_and_alerts() {
    let server = Server::start().await;
    server.define_kinds().await;
    let of_reasons = Reason::ALL.iter().filter_map(|reason| Some((reason.to_string(), reason.entry()?)));
    let of_reasons =
        of_reasons.flat_map(|(name, entry)| entry.commands().map(move |one| (name.clone(), one.to_owned())));
    let all: Vec<(String, String)> = of_reasons.chain(commands_of_alerts()).collect();
    let (mut by_hand, mut asked) = (BTreeSet::new(), BTreeSet::new());
    for (name, command) in &all {
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
    assert!(asked.len() > 60, "{}", asked.len());
}
