//! Names for an argument: of objects, contexts, reasons and cities.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use clap::{Arg, Command};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use compute_operator::api::{
    compute::{Instance, Workload, WorkloadDeployment},
    karmada::Cluster,
    meta::label,
    reason::Reason,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, ListParams, ObjectMeta},
    config::{ExecInteractiveMode, Kubeconfig},
};

use super::words::Line;
use crate::{explain::plain, planes};

/// Time for all names. A person waits for them in the middle of a line.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Objects in one answer. Those of the first answers are shown if the time runs out.
const PART: u32 = 500;

/// Most candidates.
const MOST: usize = 5000;

/// Kinds of objects, as they are typed and as they are read.
const KINDS: [(&str, Source); 6] = [
    ("workload", Source::Workloads),
    ("wd", Source::Deployments),
    ("instance", Source::Instances),
    ("secret", Source::Secrets),
    ("configmap", Source::ConfigMaps),
    ("cluster", Source::Clusters),
];

/// Source of names on a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Workloads of the namespace.
    Workloads,
    /// WorkloadDeployments of the namespace.
    Deployments,
    /// Instances of the namespace.
    Instances,
    /// Secrets of the namespace.
    Secrets,
    /// ConfigMaps of the namespace.
    ConfigMaps,
    /// Namespaces of the project.
    Namespaces,
    /// Namespaces of the manager's cluster.
    ManagerNamespaces,
    /// Clusters of the hub.
    Clusters,
    /// Cities of the hub's Clusters.
    Cities,
}

impl Source {
    fn kind(self) -> ApiResource {
        match self {
            Self::Workloads => ApiResource::erase::<Workload>(&()),
            Self::Deployments => ApiResource::erase::<WorkloadDeployment>(&()),
            Self::Instances => ApiResource::erase::<Instance>(&()),
            Self::Secrets => ApiResource::erase::<Secret>(&()),
            Self::ConfigMaps => ApiResource::erase::<ConfigMap>(&()),
            Self::Namespaces | Self::ManagerNamespaces => ApiResource::erase::<Namespace>(&()),
            Self::Clusters | Self::Cities => ApiResource::erase::<Cluster>(&()),
        }
    }

    /// True if its objects are in the namespace of the project.
    fn has_namespace(self) -> bool {
        !matches!(self, Self::Namespaces | Self::ManagerNamespaces | Self::Clusters | Self::Cities)
    }

    /// Returns the name that an object gives.
    fn name(self, meta: &ObjectMeta) -> Option<String> {
        match self {
            Self::Cities => meta.labels.as_ref()?.get(label::TOPOLOGY_CITY).cloned(),
            _ => meta.name.clone(),
        }
    }
}

/// Adds a source of candidates to each argument that has names.
pub fn attach(command: Command, line: &Line) -> Command {
    let line = Arc::new(line.clone());
    attach_to(command, &line)
}

fn attach_to(command: Command, line: &Arc<Line>) -> Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|arg| attach_to_argument(arg, &name, line));
    command.mut_subcommands(|command| attach_to(command, line))
}

fn attach_to_argument(arg: Arg, command: &str, line: &Arc<Line>) -> Arg {
    let line = Arc::clone(line);
    let from = |source: Source| {
        let line = Arc::clone(&line);
        ArgValueCompleter::new(move |word: &OsStr| plain_candidates(of_plane(&line, source), word))
    };
    match arg.get_id().as_str() {
        "context" | "hub_context" | "manager_context" | "karmada_context" => {
            arg.add(ArgValueCompleter::new(move |word: &OsStr| plain_candidates(contexts(&line), word)))
        }
        "cell_contexts" => arg.add(ArgValueCompleter::new(move |word: &OsStr| cell_contexts(&line, word))),
        "namespace" => arg.add(from(Source::Namespaces)),
        "manager_namespace" => arg.add(from(Source::ManagerNamespaces)),
        "city" => arg.add(from(Source::Cities)),
        "name" => arg.add(from(Source::Clusters)),
        "reason" => arg.add(ArgValueCompleter::new(reasons)),
        "object" => {
            let kinds = match command {
                "trace" => &KINDS[..],
                "events" => &KINDS[..3],
                _ => &KINDS[..1],
            };
            arg.add(ArgValueCompleter::new(move |word: &OsStr| objects(&line, kinds, word)))
        }
        _ => arg,
    }
}

/// Returns kinds, or names of the kind that is in the word or is the word before it.
fn objects(line: &Line, kinds: &[(&str, Source)], word: &OsStr) -> Vec<CompletionCandidate> {
    let word = word.to_string_lossy();
    let source_of = |kind: &str| source(kind).filter(|source| kinds.iter().any(|(_, known)| known == source));
    if let Some((kind, _)) = word.split_once('/') {
        let names = source_of(kind).map(|source| of_plane(line, source)).unwrap_or_default();
        return plain_candidates(names.into_iter().map(|name| format!("{kind}/{name}")), OsStr::new(&*word));
    }
    match &*line.object {
        [] => plain_candidates(kinds.iter().map(|(kind, _)| (*kind).to_owned()), OsStr::new(&*word)),
        [kind] if !kind.contains('/') => {
            let names = source_of(kind).map(|source| of_plane(line, source)).unwrap_or_default();
            plain_candidates(names, OsStr::new(&*word))
        }
        _ => Vec::new(),
    }
}

/// Returns the source of a kind, in each spelling that the commands take.
fn source(kind: &str) -> Option<Source> {
    use crate::target::Target;
    use compute_operator::api::referenced::SourceKind;
    match Target::of(&[kind.to_owned(), "x".to_owned()]).ok()? {
        Target::Workload(_) => Some(Source::Workloads),
        Target::Deployment(_) => Some(Source::Deployments),
        Target::Instance(_) => Some(Source::Instances),
        Target::Cluster(_) => Some(Source::Clusters),
        Target::Data(data) if data.kind == SourceKind::Secret => Some(Source::Secrets),
        Target::Data(_) => Some(Source::ConfigMaps),
    }
}

/// Returns all reasons with their meanings, in any case of the word.
fn reasons(word: &OsStr) -> Vec<CompletionCandidate> {
    let word = word.to_string_lossy().to_ascii_lowercase();
    let known = Reason::ALL.iter().filter(|reason| reason.as_str().to_ascii_lowercase().starts_with(&word));
    let candidate = |reason: &Reason| {
        let meaning = reason.entry().map(|entry| plain(entry.meaning).into());
        CompletionCandidate::new(reason.as_str()).help(meaning)
    };
    known.map(candidate).collect()
}

/// Returns the contexts of the kubeconfig.
fn contexts(line: &Line) -> Vec<String> {
    let kubeconfig = planes::kubeconfig(line.kubeconfig.as_deref());
    kubeconfig.map(|kubeconfig| kubeconfig.contexts.into_iter().map(|named| named.name).collect()).unwrap_or_default()
}

/// Returns `CLUSTER=`, or contexts behind it.
fn cell_contexts(line: &Line, word: &OsStr) -> Vec<CompletionCandidate> {
    match word.to_string_lossy().split_once('=') {
        None => plain_candidates(of_plane(line, Source::Clusters).into_iter().map(|name| name + "="), word),
        Some((cluster, _)) => {
            plain_candidates(contexts(line).into_iter().map(|context| format!("{cluster}={context}")), word)
        }
    }
}

fn plain_candidates(names: impl IntoIterator<Item = String>, word: &OsStr) -> Vec<CompletionCandidate> {
    let word = word.to_string_lossy();
    let sorted: BTreeSet<String> = names.into_iter().filter(|name| name.starts_with(&*word)).collect();
    sorted.into_iter().map(CompletionCandidate::new).collect()
}

/// Reads names from a control plane, for a limited time. Without an answer there are none.
fn of_plane(line: &Line, source: Source) -> Vec<String> {
    let (line, (say, names)) = (line.clone(), mpsc::channel());
    let until = Instant::now() + PATIENCE;
    // In a thread: a program that makes credentials would block more than the read.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if let Ok(runtime) = runtime {
            runtime.block_on(async {
                if let Some((client, namespace)) = client(&line, source).await {
                    read(client, &namespace, source, &say).await;
                }
            });
        }
    });
    gather(&names, until)
}

/// Gathers what comes until a time.
fn gather(names: &mpsc::Receiver<Vec<String>>, until: Instant) -> Vec<String> {
    let mut all = Vec::new();
    while let Ok(part) = names.recv_timeout(until.saturating_duration_since(Instant::now())) {
        all.extend(part);
        if all.len() >= MOST {
            break;
        }
    }
    all
}

/// Returns a client of the control plane that has the source, with the namespace.
async fn client(line: &Line, source: Source) -> Option<(Client, String)> {
    let kubeconfig = silent(planes::kubeconfig(line.kubeconfig.as_deref()).ok()?);
    let context = match source {
        Source::Clusters | Source::Cities => Some(line.hub_context.as_deref()?),
        Source::ManagerNamespaces => line.manager_context.as_deref().or(line.context.as_deref()),
        _ => line.context.as_deref(),
    };
    let config = planes::config(&kubeconfig, context).await.ok()?;
    let namespace = line.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    Some((planes::client(config).ok()?, namespace))
}

/// Forbids programs for credentials to ask the user, and to write over the line.
fn silent(mut kubeconfig: Kubeconfig) -> Kubeconfig {
    let users = kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut());
    for exec in users.filter_map(|user| user.exec.as_mut()) {
        exec.interactive_mode = Some(ExecInteractiveMode::Never);
    }
    kubeconfig
}

/// Reads names, answer by answer. Only metadata is asked for, so no value of a Secret or ConfigMap is ever read.
async fn read(client: Client, namespace: &str, source: Source, say: &mpsc::Sender<Vec<String>>) {
    let kind = source.kind();
    let api: Api<DynamicObject> = if source.has_namespace() {
        Api::namespaced_with(client, namespace, &kind)
    } else {
        Api::all_with(client, &kind)
    };
    let mut params = ListParams::default().limit(PART);
    while let Ok(list) = api.list_metadata(&params).await {
        let names = list.items.iter().filter_map(|object| source.name(object.meta())).collect();
        let next = list.metadata.continue_.filter(|next| !next.is_empty());
        if say.send(names).is_err() {
            return;
        }
        match next {
            Some(next) => params = params.continue_token(&next),
            None => return,
        }
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
