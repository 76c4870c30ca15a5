//! Planted faults. Each one is planted in a running federation, must be named in time and in the same way everywhere, and is mended by
//! the command that the table of reasons proposes.
//!
//! Each file has one test. It plants its faults in sequence, because each affects the whole federation. `FAULT=name` in the
//! environment plants only the faults whose names contain it.

mod cells;
mod data;
mod delivery;
mod planes;

use std::{fs, process::Stdio, time::Duration};

use compute_operator::api::reason::Reason;
use kubectl_compute::exit::Exit;
use serde_json::{Value, json};
use testbed::{binaries, pki::User};
use tokio::{process::Command, time::Instant};

use crate::{
    common::{
        PATIENCE, World, apply,
        beds::{Lent, Wish, alone},
        command::{Asker, SecurePort},
        condition, delete, eventually, get, list, path, promised, ready, template, workload,
    },
    scraping::{Pace, Prometheus, as_the_service_monitor_says, program},
};

/// Time within which a fault or its end must be reported.
const NAMED_WITHIN: Duration = Duration::from_secs(20);
/// The same for an unreachable cluster on real Karmada, which itself needs longer to report it (fact 31).
const KARMADA_NAMES_WITHIN: Duration = Duration::from_mins(1);
/// Longest time of one trace. The command itself takes milliseconds, and each call reads its kubeconfig anew.
const TRACED_WITHIN: Duration = Duration::from_secs(1);

/// A federation with a running Workload, and everything that can be asked about it.
pub struct Stage {
    world: Lent<World>,
    asker: Asker,
    /// With the operator's rules. `None` if the program is not installed.
    prometheus: Option<Prometheus>,
    ns: String,
    hub: String,
}

impl Stage {
    async fn set(wish: Wish) -> Self {
        let port = SecurePort::free();
        let world = alone(Wish { management: wish.management.clone() + &port.config(), ..wish }).await;
        let asker = Asker::of(&world.bed, &world.project, port).await;
        let (ns, hub) = world.namespace("fault").await;
        let prometheus = program().map(|program| {
            let token = world.bed.dir().join("prometheus-token");
            fs::write(&token, &*User::Admin.token()).unwrap();
            let pace =
                Pace { scrape: "1s", evaluate: "1s", ask: as_the_service_monitor_says(&token), ..Pace::default() };
            Prometheus::start(&program, &world, &pace)
        });
        let stage = Self { world, asker, prometheus, ns, hub };
        stage.scrape();
        // The first deployment creates the hub namespace. Some faults need it before their own deployment.
        stage.start("first", "dfw").await;
        ready(&stage.world, &stage.ns, "first", 1).await;
        stage
    }

    /// Sets the targets of Prometheus.
    fn scrape(&self) {
        if let Some(prometheus) = &self.prometheus {
            let manager = ("operator-management", self.asker.url.clone());
            let cells = self.world.operators[1..].iter();
            let cells = cells.map(|cell| (cell.process.name(), format!("http://{}", cell.metrics_address())));
            prometheus.ask_at([manager].into_iter().chain(cells));
        }
    }

    /// True if this fault is to be planted. Prints its name.
    fn plants(name: &str) -> bool {
        let wanted = std::env::var("FAULT").map_or(true, |wanted| name.contains(&wanted));
        if wanted {
            eprintln!("fault: {name}");
        }
        wanted
    }

    /// Waits until a condition of an object of the project has this reason. Returns its message.
    async fn says(&self, object: (&str, &str), type_: &str, reason: &str) -> String {
        let slow = reason == "ClusterNotReady" && self.world.bed.stand_in().is_none();
        let within = promised(if slow { KARMADA_NAMES_WITHIN } else { NAMED_WITHIN });
        self.says_within(within, object, type_, reason).await
    }

    async fn says_within(&self, within: Duration, (kind, name): (&str, &str), type_: &str, reason: &str) -> String {
        let began = Instant::now();
        loop {
            let told = match get(&self.world.project, kind, &self.ns, name).await {
                Some(object) => condition(&object, type_),
                None => Value::Null,
            };
            if told["reason"] == reason {
                eprintln!("  {kind} {name}: {type_} {reason} after {:.1} s", began.elapsed().as_secs_f64());
                return told["message"].as_str().unwrap().to_owned();
            }
            assert!(began.elapsed() < within, "{kind} {name} does not report {type_} {reason}, but {told}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Waits until `Federated` of a deployment has this reason. Returns its message.
    async fn federated(&self, deployment: &str, reason: &str) -> String {
        self.says(("WorkloadDeployment", deployment), "Federated", reason).await
    }

    /// Waits until `Ready` of an object has this reason, and asserts that trace, list, metric and alert name the same one. Returns
    /// its message.
    async fn named(&self, object: (&str, &str), reason: &str) -> String {
        let message = self.says(object, "Ready", reason).await;
        let took = self.asker.all_name(&self.world.project, &self.ns, object, reason).await;
        assert!(took < promised(TRACED_WITHIN), "the trace took {took:?}");
        let Some(prometheus) = &self.prometheus else { return message };
        let entry = Reason::from(reason).entry();
        let alerts = entry.map_or(&["ComputeDeploymentsBlocked"][..], |entry| entry.alerts);
        // Rates need two scrapes. They are shown by the test of all alerts.
        let expected =
            alerts.iter().find(|alert| ["ComputeDeploymentsBlocked", "ComputeCellUnreachable"].contains(alert));
        let Some(alert) = expected else {
            let all = prometheus.ask(&format!("ALERTS{{reason=\"{reason}\"}}")).await.unwrap();
            assert!(all.is_empty(), "{reason} is no cause for an alert: {all:?}");
            return message;
        };
        eventually(&format!("{alert} names {reason}"), || async {
            let all = prometheus.ask(&format!("ALERTS{{alertname=\"{alert}\"}}")).await?;
            let names_it = |one: &Value| *alert != "ComputeDeploymentsBlocked" || one["metric"]["reason"] == reason;
            if all.iter().any(names_it) { Ok(()) } else { Err(format!("{all:?}")) }
        })
        .await;
        message
    }

    /// Carries out a step that the table of reasons proposes. `words` are the values of its placeholders.
    async fn follow(&self, reason: &str, step: usize, words: &[(&str, &str)]) {
        let entry = Reason::from(reason).entry().unwrap();
        let command = entry.steps[step - 1].split('`').nth(1).unwrap_or_else(|| panic!("step {step} has no command"));
        let planes = [("HUB", self.world.bed.hub.name()), ("PROJECT", self.world.bed.project.name())];
        let own = [("HUB_NAMESPACE", &*self.hub), ("NAMESPACE", &*self.ns)];
        let values = [&planes[..], &own, words].concat();
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut filled = String::new();
        for part in command.split_inclusive(|c| !is_of_name(c)) {
            let word = part.trim_end_matches(|c| !is_of_name(c));
            filled += values.iter().find(|(name, _)| *name == word).map_or(word, |(_, value)| value);
            filled += &part[word.len()..];
        }
        // The planes are contexts of one kubeconfig here.
        let filled = filled.replace("--kubeconfig ", "--context ");
        eprintln!("  {filled}");
        if let Some(words) = filled.strip_prefix("kubectl compute ") {
            // The context of the hub is given already.
            let words = words.replace(&format!(" --hub-context {}", self.world.bed.hub.name()), "");
            let (exit, text) = self.asker.ask(&self.ns, &words.split(' ').collect::<Vec<_>>()).await;
            assert!([Exit::Well, Exit::InProgress].contains(&exit), "{filled}: {exit:?} {text}");
            return;
        }
        let kubectl = binaries::find_with_kubectl(&|_| ()).unwrap();
        let run = Command::new("sh")
            .args(["-c", &filled])
            .env("PATH", format!("{}:{}", kubectl.display(), std::env::var("PATH").unwrap()))
            .env("KUBECONFIG", &self.asker.kubeconfig)
            .current_dir(path(""))
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        assert!(run.status.success(), "{filled}: {}", String::from_utf8_lossy(&run.stderr));
    }

    /// A Workload of one Instance in this city. It refers to this Secret.
    fn using(&self, name: &str, city: &str, secret: &str) -> Value {
        let mut object = workload(&self.ns, name, &[city], 1);
        object["spec"]["template"] = template("docker.io/library/nginx:1");
        object["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["envFrom"] =
            json!([{ "secretRef": { "name": secret } }]);
        object
    }

    fn secret(&self, name: &str, value: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": self.ns, "name": name },
            "stringData": { "key": value },
        })
    }

    /// Deploys a Workload of one Instance with its own Secret. Returns the name of the deployment.
    async fn start(&self, name: &str, city: &str) -> String {
        let own = format!("{name}-data");
        apply(&self.world.project, self.secret(&own, "v")).await;
        apply(&self.world.project, self.using(name, city, &own)).await;
        format!("{name}-p-{city}")
    }

    /// Asserts that the Workload becomes ready in time, and deletes it.
    async fn mended(&self, workload: &str) {
        // A write that was refused for long is repeated after a pause as long.
        self.says_within(PATIENCE, ("Workload", workload), "Ready", "ReplicasAvailable").await;
        self.end(workload).await;
    }

    /// Deletes a Workload, and waits until it is gone.
    async fn end(&self, workload: &str) {
        delete(&self.world.project, "Workload", &self.ns, workload).await;
        eventually(&format!("{workload} is gone"), || async {
            get(&self.world.project, "Workload", &self.ns, workload).await.map_or(Ok(()), |_| Err("not yet".to_owned()))
        })
        .await;
    }

    async fn events(&self, deployment: &str) -> Vec<String> {
        let all = list(&self.world.project, "Event", &self.ns).await;
        let of = all.iter().filter(|event| event.data["regarding"]["name"] == deployment);
        of.map(|event| event.data["reason"].as_str().unwrap().to_owned()).collect()
    }
}
