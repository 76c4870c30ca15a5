//! Control planes, by the contexts of a kubeconfig.

use std::{collections::BTreeMap, path::Path};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use serde::{Deserialize, Serialize};

use crate::{
    exit::Exit,
    flags::Global,
    seen::{Seen, words},
};

/// Clients of the control planes that a command reads.
pub struct Planes {
    /// Name of the project's context.
    pub context: String,
    /// Namespace in the project.
    pub namespace: String,
    /// The project.
    pub project: Client,
    /// The hub, if its context is known.
    pub hub: Option<Client>,
    /// The contexts of hub and cells.
    pub contexts: Contexts,
    hub_config: Option<Config>,
    cells: BTreeMap<String, Client>,
}

/// Why nothing is seen in a cell, in front of the flag's value.
pub const NOT_REACHED: &str = "the hub's proxy does not reach it; give --cell-context";

/// Names of contexts that the user gave, for the commands that a screen proposes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contexts {
    /// Context of the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub: Option<String>,
    /// Contexts of cells, by Cluster.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cells: BTreeMap<String, String>,
}

impl Contexts {
    /// True if the user gave none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Reads the kubeconfig that the flags name.
///
/// # Errors
/// One line for the user.
pub fn kubeconfig(path: Option<&Path>) -> Result<Kubeconfig, String> {
    let read = path.map_or_else(Kubeconfig::read, Kubeconfig::read_from);
    read.map_err(|error| format!("the kubeconfig cannot be read: {}", words(&error)))
}

/// Returns the settings of a context; the current one by default.
///
/// # Errors
/// One line for the user.
pub async fn config(kubeconfig: &Kubeconfig, context: Option<&str>) -> Result<Config, String> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await;
    config.map_err(|error| match context {
        Some(context) => format!("context {context} cannot be used: {}", words(&error)),
        None => format!("the current context cannot be used: {}", words(&error)),
    })
}

/// Returns a client with these settings.
///
/// # Errors
/// One line for the user.
pub fn client(mut config: Config) -> Result<Client, String> {
    // A person waits. What failed is said, and not tried again for minutes.
    config.default_retry = false;
    Client::try_from(config).map_err(|error| words(&error))
}

impl Planes {
    /// Makes the clients.
    ///
    /// # Errors
    /// One line for the user, with the exit code.
    pub async fn of(flags: &Global) -> Result<Self, (Exit, String)> {
        Self::read(flags).await.map_err(|error| (Exit::CouldNotAsk, error))
    }

    async fn read(flags: &Global) -> Result<Self, String> {
        let kubeconfig = kubeconfig(flags.kubeconfig.as_deref())?;
        let config_of = async |name: &str| config(&kubeconfig, Some(name)).await;
        let project = config(&kubeconfig, flags.context.as_deref()).await?;
        let namespace = flags.namespace.clone().unwrap_or_else(|| project.default_namespace.clone());
        let context = flags.context.clone().or_else(|| kubeconfig.current_context.clone()).unwrap_or_default();
        let hub_config = match flags.hub_context.as_deref() {
            Some(name) => Some(config_of(name).await?),
            None => None,
        };
        let mut cells = BTreeMap::new();
        for (cluster, name) in &flags.cell_contexts {
            cells.insert(cluster.clone(), client(config_of(name).await?)?);
        }
        let hub = hub_config.clone().map(client).transpose()?;
        let contexts =
            Contexts { hub: flags.hub_context.clone(), cells: flags.cell_contexts.iter().cloned().collect() };
        Ok(Self { context, namespace, project: client(project)?, hub, contexts, hub_config, cells })
    }

    /// Returns the settings of the hub, if its context is known.
    pub fn hub_config(&self) -> Option<Config> {
        self.hub_config.clone()
    }

    /// Reads something in a cell.
    pub async fn read_in_cell<T>(&self, cluster: &str, read: impl AsyncFnOnce(Client) -> Seen<T>) -> Seen<T> {
        let Some(cell) = self.cell(cluster) else { return Seen::NotAsked("no way to the cell".to_owned()) };
        let seen = read(cell).await;
        if self.cells.contains_key(cluster) { seen } else { through_proxy(seen, cluster) }
    }

    /// Returns the client of a cell: by its own context, else through Karmada's proxy on the hub. `None` without both.
    pub fn cell(&self, cluster: &str) -> Option<Client> {
        if let Some(cell) = self.cells.get(cluster) {
            return Some(cell.clone());
        }
        let mut config = self.hub_config.clone()?;
        let base = config.cluster_url.to_string();
        let path = format!("{}/apis/cluster.karmada.io/v1alpha1/clusters/{cluster}/proxy", base.trim_end_matches('/'));
        config.cluster_url = path.parse().ok()?;
        client(config).ok()
    }
}

/// Converts an answer that came through Karmada's proxy. A hub without the proxy answers as an API server that does not serve the
/// kind. So that answer says nothing of the cell.
fn through_proxy<T>(seen: Seen<T>, cluster: &str) -> Seen<T> {
    match seen {
        Seen::Unserved => Seen::Unanswered(format!("{NOT_REACHED} {cluster}=CONTEXT")),
        seen => seen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `trace` said that the cell has no such deployment.
    #[test]
    fn kind_not_served_by_the_proxy_is_not_absent_in_the_cell() {
        let hidden = through_proxy(Seen::<()>::Unserved, "cell-dfw");
        assert!(!hidden.is_absent());
        assert!(hidden.hidden().unwrap().ends_with("give --cell-context cell-dfw=CONTEXT"), "{hidden:?}");
        assert!(through_proxy(Seen::<()>::Absent, "cell-dfw").is_absent(), "the cell itself answers");
    }
}
