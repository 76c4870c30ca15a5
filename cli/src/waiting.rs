//! `waiting`: what waits in all projects, and who has to act. The manager answers from its caches.

use std::{fmt::Write as _, io::Write, path::Path, process::Stdio, time::Duration};

use compute_operator::plan::management::waiting::{Answer, MAX_LIMIT, Query, Waiting};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, Config};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::{
    exit::Exit,
    flags,
    output::Output,
    planes,
    screen::{Screen, age},
    seen::words,
};

/// Port of the manager's metrics.
const PORT: u16 = 8443;

/// Time that a port-forward and an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the command.
///
/// # Errors
/// One line, with the exit code.
pub async fn run(
    global: &flags::Global,
    args: &flags::Waiting,
    output: Output,
    out: &mut dyn Write,
) -> Result<Exit, (Exit, String)> {
    let answer = tokio::time::timeout(PATIENCE, ask(global, args)).await;
    let answer =
        answer.map_err(|_| (Exit::Timeout, format!("the manager has not answered in {} s", PATIENCE.as_secs())))?;
    let answer = answer.map_err(|error| (Exit::CouldNotAsk, error))?;
    let objects = args.objects || args.all || args.reason.is_some();
    output.print(out, &answer, |screen| text(&answer, objects, screen))?;
    Ok(exit(&answer))
}

/// Returns the exit code: whether anybody has to act.
fn exit(answer: &Answer) -> Exit {
    let waits_for = |who: &str| answer.causes.iter().any(|cause| cause.waits_for == who);
    if waits_for("platform") {
        Exit::Platform
    } else if waits_for("tenant") {
        Exit::Tenant
    } else if answer.causes.is_empty() {
        Exit::Well
    } else {
        Exit::InProgress
    }
}

async fn ask(global: &flags::Global, args: &flags::Waiting) -> Result<Answer, String> {
    let kubeconfig = planes::kubeconfig(global.kubeconfig.as_deref())?;
    let context = args.manager_context.as_deref().or(global.context.as_deref());
    let home = planes::config(&kubeconfig, context).await?;
    // Ends with this command.
    let (_forward, url) = if let Some(url) = &args.manager_url {
        (None, url.clone())
    } else {
        let pod = leader(home.clone(), &args.manager_namespace).await?;
        let (forward, port) = forward(global, context, &args.manager_namespace, &pod).await?;
        (Some(forward), format!("https://localhost:{port}"))
    };
    let client = client(home, &url, args.token_file.as_deref())?;
    let mut query = Query {
        reason: args.reason.clone(),
        city: args.city.clone(),
        project: args.project.clone(),
        limit: args.all.then_some(MAX_LIMIT),
        after: None,
    };
    let mut answer = get(&client, &query).await?;
    while let Some(next) = answer.next.take_if(|_| args.all) {
        query.after = Some(next);
        let more = get(&client, &query).await?;
        answer.objects.extend(more.objects);
        answer.next = more.next;
    }
    Ok(answer)
}

/// Returns the pod that holds the Lease.
async fn leader(home: Config, namespace: &str) -> Result<String, String> {
    let client = Client::try_from(home).map_err(|error| words(&error))?;
    let leases: Api<Lease> = Api::namespaced(client, namespace);
    let name = compute_operator::api::meta::LEASE;
    let lease = leases.get(name).await.map_err(|error| {
        format!("Lease {namespace}/{name} of the manager cannot be read: {}; give --manager-url", words(&error))
    })?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity).filter(|holder| !holder.is_empty());
    let holder = holder.ok_or_else(|| format!("no manager leads: Lease {namespace}/{name} has no holder"))?;
    Ok(holder.split('_').next().unwrap_or_default().to_owned())
}

/// Starts a port-forward by kubectl, which knows how to reach pods. Returns it with its local port.
async fn forward(
    global: &flags::Global,
    context: Option<&str>,
    namespace: &str,
    pod: &str,
) -> Result<(Child, u16), String> {
    let mut command = Command::new("kubectl");
    if let Some(kubeconfig) = &global.kubeconfig {
        command.arg("--kubeconfig").arg(kubeconfig);
    }
    if let Some(context) = context {
        command.arg("--context").arg(context);
    }
    command.args(["--namespace", namespace, "port-forward", &format!("pod/{pod}"), &format!(":{PORT}")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
    let mut child =
        command.spawn().map_err(|error| format!("kubectl cannot be started: {error}; give --manager-url"))?;
    let lines = child.stdout.take().ok_or("kubectl has no output")?;
    let mut lines = BufReader::new(lines).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(port) = local_port(&line) {
            return Ok((child, port));
        }
    }
    Err(format!("kubectl port-forward to pod {namespace}/{pod} failed; give --manager-url"))
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

async fn get(client: &Client, query: &Query) -> Result<Answer, String> {
    let query = parameters(query);
    let request = http::Request::get(format!("/waiting{query}")).body(Vec::new()).map_err(|error| error.to_string())?;
    let text = client.request_text(request).await.map_err(|error| match error {
        kube::Error::Api(status) if status.code == 401 => {
            "the manager does not know the user: it needs a token; give --token-file with one of `kubectl create token`"
                .to_owned()
        }
        kube::Error::Api(status) => format!("the manager refuses: {}", status.message.trim()),
        error => format!("the manager does not answer: {}", words(&error)),
    })?;
    serde_json::from_str(&text).map_err(|error| format!("the manager's answer is not understood: {error}"))
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

fn text(answer: &Answer, objects: bool, screen: Screen) -> String {
    let mut text =
        if objects { objects_text(&answer.objects, answer.time, screen) } else { causes_text(answer, screen) };
    let waiting: usize = answer.causes.iter().map(|cause| cause.objects).sum();
    let projects = answer.projects;
    let _ = match waiting {
        0 => writeln!(text, "Nothing waits: {} deployments in {projects} projects.", answer.deployments),
        _ => writeln!(
            text,
            "{waiting} objects wait. The manager serves {} deployments in {projects} projects.",
            answer.deployments
        ),
    };
    if objects && answer.next.is_some() {
        text.push_str("These are the first of them: --all lists the others too.\n");
    }
    if !answer.incomplete.is_empty() {
        let names: Vec<&str> = answer.incomplete.iter().map(|name| name.as_str()).collect();
        let _ = writeln!(text, "Not complete for {}: the manager cannot read everything there.", names.join(", "));
    }
    text
}

fn causes_text(answer: &Answer, screen: Screen) -> String {
    if answer.causes.is_empty() {
        return String::new();
    }
    let mut rows = vec![row(&["WHO ACTS", "REASON", "CITY", "CLUSTER", "PROJECTS", "OBJECTS", "OLDEST"])];
    for cause in &answer.causes {
        rows.push(row(&[
            &cause.waits_for,
            &cause.reason,
            cause.city.as_deref().unwrap_or("–"),
            &or_dash(&cause.clusters),
            &cause.projects.to_string(),
            &cause.objects.to_string(),
            &age(cause.oldest, answer.time),
        ]));
    }
    screen.table(&rows)
}

fn objects_text(objects: &[Waiting], now: Timestamp, screen: Screen) -> String {
    if objects.is_empty() {
        return String::new();
    }
    let mut rows = vec![row(&["PROJECT", "NAMESPACE", "OBJECT", "WHO ACTS", "REASON", "CLUSTER", "SINCE", "MESSAGE"])];
    for object in objects {
        let place = &object.place;
        rows.push(row(&[
            place.project.as_str(),
            &place.namespace,
            &format!("{}/{}", format!("{:?}", place.kind).to_lowercase(), place.name),
            &object.waits_for,
            &object.reason,
            &or_dash(&object.clusters),
            &age(object.since, now),
            &object.message.replace('\n', " "),
        ]));
    }
    screen.table(&rows)
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn or_dash(names: &[String]) -> String {
    if names.is_empty() { "–".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer() -> Answer {
        serde_json::from_value(json!({
            "time": "2026-01-01T12:00:00Z", "projects": 212, "deployments": 2041, "incomplete": ["lab"],
            "causes": [
                { "waitsFor": "platform", "reason": "NotScheduled", "city": "ord", "clusters": ["cell-ord"],
                  "projects": 3, "objects": 14, "oldest": "2026-01-01T11:53:50Z" },
                { "waitsFor": "tenant", "reason": "InvalidPlacement", "projects": 1, "objects": 1,
                  "oldest": "2026-01-01T09:57:00Z" },
            ],
            "objects": [{
                "project": "shop", "namespace": "demo", "kind": "WorkloadDeployment", "name": "hello-edge-ord",
                "city": "ord", "clusters": ["cell-ord"], "reason": "NotScheduled", "waitsFor": "platform",
                "since": "2026-01-01T11:53:50Z", "message": "Karmada: 0/2 clusters are available",
            }],
            "next": "shop/demo/WorkloadDeployment/hello-edge-ord",
        }))
        .unwrap()
    }

    #[test]
    fn causes_are_one_line_each() {
        let expected = "\
WHO ACTS  REASON            CITY  CLUSTER   PROJECTS  OBJECTS  OLDEST
platform  NotScheduled      ord   cell-ord  3         14       6m10s
tenant    InvalidPlacement  –     –         1         1        2h3m
15 objects wait. The manager serves 2041 deployments in 212 projects.
Not complete for lab: the manager cannot read everything there.
";
        assert_eq!(text(&answer(), false, Screen::PLAIN), expected);
        assert_eq!(exit(&answer()), Exit::Platform);
    }

    #[test]
    fn objects_are_listed_with_their_messages() {
        let text = text(&answer(), true, Screen::PLAIN);
        let row = text.lines().nth(1).unwrap();
        let words: Vec<_> = row.split_whitespace().take(7).collect();
        assert_eq!(
            words,
            ["shop", "demo", "workloaddeployment/hello-edge-ord", "platform", "NotScheduled", "cell-ord", "6m10s"]
        );
        assert!(text.contains("--all lists the others too"), "{text}");
    }

    #[test]
    fn nothing_that_waits_is_said() {
        let quiet = Answer { causes: Vec::new(), objects: Vec::new(), next: None, incomplete: Vec::new(), ..answer() };
        for objects in [false, true] {
            let text = text(&quiet, objects, Screen::PLAIN);
            assert_eq!(text, "Nothing waits: 2041 deployments in 212 projects.\n");
        }
        assert_eq!(exit(&quiet), Exit::Well);
        let mut new = answer();
        for cause in &mut new.causes {
            cause.waits_for = "nobody".to_owned();
        }
        assert_eq!(exit(&new), Exit::InProgress);
    }

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
}
