//! The manager: its leader, a port-forward to it, and its answers.

use std::{path::Path, process::Stdio};

use compute_operator::plan::management::waiting::{Answer, Query};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, Config};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::{flags, planes, seen::words};

/// Port of the manager's metrics.
const PORT: u16 = 8443;

/// Destination of the error messages of kubectl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problems {
    /// The standard error of this process.
    Shown,
    /// Nowhere: the screen belongs to another view.
    Hidden,
}

/// A connection to the manager that leads.
pub struct Manager {
    client: Client,
    /// Ends with the connection.
    _forward: Option<Child>,
}

impl Manager {
    /// Finds the leader, and connects to it.
    ///
    /// # Errors
    /// One line for the user.
    pub async fn reach(global: &flags::Global, args: &flags::Manager, problems: Problems) -> Result<Self, String> {
        let kubeconfig = planes::kubeconfig(global.kubeconfig.as_deref())?;
        let context = args.manager_context.as_deref().or(global.context.as_deref());
        let home = planes::config(&kubeconfig, context).await?;
        let (forward, url) = if let Some(url) = &args.manager_url {
            (None, url.clone())
        } else {
            let pod = leader(home.clone(), &args.manager_namespace).await?;
            let command = port_forward(global, context, &args.manager_namespace, &pod, problems);
            let (forward, port) = start(command).await.map_err(|error| {
                format!("kubectl port-forward to pod {}/{pod} {error}; give --manager-url", args.manager_namespace)
            })?;
            (Some(forward), format!("https://localhost:{port}"))
        };
        Ok(Self { client: client(home, &url, args.token_file.as_deref())?, _forward: forward })
    }

    /// Asks what waits. An answer can be a part: its `next` continues it.
    ///
    /// # Errors
    /// One line for the user.
    pub async fn waiting(&self, query: &Query) -> Result<Answer, String> {
        let text = self.get(&format!("/waiting{}", parameters(query))).await?;
        serde_json::from_str(&text).map_err(|error| format!("the manager's answer is not understood: {error}"))
    }

    /// Asks what waits, until the answer is complete.
    ///
    /// # Errors
    /// One line for the user.
    pub async fn all_waiting(&self, mut query: Query) -> Result<Answer, String> {
        let mut answer = self.waiting(&query).await?;
        while let Some(next) = answer.next.take() {
            query.after = Some(next);
            let more = self.waiting(&query).await?;
            answer.objects.extend(more.objects);
            answer.next = more.next;
        }
        Ok(answer)
    }

    /// Reads the metrics.
    ///
    /// # Errors
    /// One line for the user.
    pub async fn metrics(&self) -> Result<String, String> {
        self.get("/metrics").await
    }

    async fn get(&self, path: &str) -> Result<String, String> {
        let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
        self.client.request_text(request).await.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 401 => {
                "the manager does not know the user: it needs a token; give --token-file with one of \
                 `kubectl create token`"
                    .to_owned()
            }
            kube::Error::Api(status) if status.code == 404 => {
                format!("nothing answers {path} there: give the port of the manager's metrics, with metricsServer.secureServing")
            }
            kube::Error::Api(status) => format!("the manager refuses: {} {}", status.code, status.message.trim()),
            error => format!("the manager does not answer: {}", words(&error)),
        })
    }
}

/// Returns the pod that holds the Lease.
async fn leader(home: Config, namespace: &str) -> Result<String, String> {
    let client = Client::try_from(home).map_err(|error| words(&error))?;
    let leases: Api<Lease> = Api::namespaced(client, namespace);
    let name = compute_operator::api::meta::LEASE;
    let lease = leases.get(name).await.map_err(|error| {
        format!(
            "Lease {namespace}/{name} of the manager cannot be read: {}. This command is for the platform's team: give the context of \
             the manager's cluster with --manager-context, or --manager-url. A tenant asks with kubectl compute trace workload/NAME",
            words(&error)
        )
    })?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity).filter(|holder| !holder.is_empty());
    let holder = holder.ok_or_else(|| format!("no manager leads: Lease {namespace}/{name} has no holder"))?;
    Ok(holder.split('_').next().unwrap_or_default().to_owned())
}

/// Returns the command for a port-forward by kubectl, which knows how to reach pods.
fn port_forward(
    global: &flags::Global,
    context: Option<&str>,
    namespace: &str,
    pod: &str,
    problems: Problems,
) -> Command {
    let mut command = Command::new("kubectl");
    if let Some(kubeconfig) = &global.kubeconfig {
        command.arg("--kubeconfig").arg(kubeconfig);
    }
    if let Some(context) = context {
        command.arg("--context").arg(context);
    }
    command.args(["--namespace", namespace, "port-forward", &format!("pod/{pod}"), &format!(":{PORT}")]);
    command.stderr(if problems == Problems::Shown { Stdio::inherit() } else { Stdio::null() });
    command
}

/// Starts a port-forward, which is killed with the returned value. Returns it with its local port.
async fn start(mut command: Command) -> Result<(Child, u16), String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("cannot be started: {error}"))?;
    let lines = child.stdout.take().ok_or("has no output")?;
    let mut lines = BufReader::new(lines).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(port) = local_port(&line) {
            // kubectl prints a line for each connection. It ends if its output is closed.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok((child, port));
        }
    }
    Err("failed".to_owned())
}

/// Reads the port in `Forwarding from 127.0.0.1:PORT -> 8443`.
fn local_port(line: &str) -> Option<u16> {
    let (from, _) = line.strip_prefix("Forwarding from ")?.split_once(" -> ")?;
    from.rsplit(':').next()?.parse().ok()
}

/// Returns a client of the manager, with the credentials of the context or a token.
fn client(home: Config, url: &str, token_file: Option<&Path>) -> Result<Client, String> {
    let mut config = Config::new(url.parse().map_err(|_| format!("{url:?} is no URL"))?);
    match token_file {
        Some(file) => config.auth_info.token_file = Some(file.display().to_string()),
        None => config.auth_info = home.auth_info,
    }
    // The certificate is often made by the manager itself. The port-forward leads to its pod, by the word of the API server.
    config.accept_invalid_certs = true;
    config.default_retry = false;
    Client::try_from(config).map_err(|error| words(&error))
}

/// Returns the query string.
fn parameters(query: &Query) -> String {
    let Query { reason, city, project, limit, after } = query;
    let limit = limit.map(|limit| limit.to_string());
    let all = [("reason", reason), ("city", city), ("project", project), ("limit", &limit), ("after", after)];
    let given = all.into_iter().filter_map(|(key, value)| Some(format!("{key}={}", escaped(value.as_ref()?))));
    let given: Vec<String> = given.collect();
    if given.is_empty() { String::new() } else { format!("?{}", given.join("&")) }
}

/// Escapes a value for a query string.
fn escaped(value: &str) -> String {
    let escape = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    value.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn port_is_read_from_the_words_of_kubectl() {
        assert_eq!(local_port("Forwarding from 127.0.0.1:40123 -> 8443"), Some(40123));
        assert_eq!(local_port("Forwarding from [::1]:40123 -> 8443"), Some(40123));
        assert_eq!(local_port("error: unable to forward"), None);
    }

    #[test]
    fn parameters_are_escaped() {
        let query = Query { reason: Some("A&b=c d/é".to_owned()), limit: Some(5), ..Query::default() };
        assert_eq!(parameters(&query), "?reason=A%26b%3Dc%20d%2F%C3%A9&limit=5");
        assert_eq!(parameters(&Query::default()), "");
    }

    /// kubectl prints a line for each connection, and was ended by the first one.
    #[tokio::test]
    async fn port_forward_outlives_its_later_lines() {
        let mut command = Command::new("sh");
        let script = "echo 'Forwarding from 127.0.0.1:40123 -> 8443'; sleep 0.2; echo 'Handling connection'; sleep 60";
        command.args(["-c", script]);
        let (mut forward, port) = start(command).await.unwrap();
        assert_eq!(port, 40123);
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert_eq!(forward.try_wait().unwrap(), None, "it runs");
    }

    #[tokio::test]
    async fn port_forward_that_ends_is_an_error() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo nothing"]);
        assert_eq!(start(command).await.unwrap_err(), "failed");
    }
}
