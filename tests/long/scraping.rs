//! Prometheus as a process next to a testbed, with the operator's rules.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use kube::{Client, Config};
use serde_json::{Value, json};
use testbed::{control_plane::free_port, operator::Operator, process::Process};

use crate::common::{World, eventually, path};

/// Label of the operator's metrics in alerts and on the dashboard.
pub const JOB: &str = "job=\"compute-metrics\"";

/// Intervals of scrapes and evaluation, and the rules.
pub struct Pace {
    pub scrape: &'static str,
    pub evaluate: &'static str,
    pub rules: Value,
    /// Additional scrape settings, if not plain HTTP.
    pub ask: Value,
}

impl Default for Pace {
    /// Short intervals, with the unchanged rules.
    fn default() -> Self {
        Self { scrape: "2s", evaluate: "5s", rules: rules(), ask: json!({}) }
    }
}

/// Returns the operator's rule groups in Prometheus' own format.
pub fn rules() -> Value {
    let text = fs::read_to_string(path("config/components/alerts/rules.yaml")).unwrap();
    let [rules] = &testbed::manifests::documents(&text).unwrap()[..] else { panic!("one PrometheusRule") };
    rules["spec"].clone()
}

/// Returns the scrape settings of the operator's ServiceMonitor, with the token in this file.
pub fn as_the_service_monitor_says(token: &Path) -> Value {
    let text = fs::read_to_string(path("config/components/service-monitor/service_monitor.yaml")).unwrap();
    let [monitor] = &testbed::manifests::documents(&text).unwrap()[..] else { panic!("one ServiceMonitor") };
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert!(endpoint["bearerTokenFile"].is_string());
    json!({
        "scheme": endpoint["scheme"], "metrics_path": endpoint["path"],
        "authorization": { "credentials_file": token },
        "tls_config": { "insecure_skip_verify": endpoint["tlsConfig"]["insecureSkipVerify"] },
    })
}

/// Returns the program from `PROMETHEUS` or the `PATH`, or `None` if it does not run.
pub fn program() -> Option<PathBuf> {
    let program = std::env::var_os("PROMETHEUS").map_or_else(|| PathBuf::from("prometheus"), PathBuf::from);
    Command::new(&program).arg("--version").output().is_ok_and(|out| out.status.success()).then_some(program)
}

/// A Prometheus process that ends when dropped.
pub struct Prometheus {
    _process: Process,
    client: Client,
    targets: PathBuf,
}

impl Prometheus {
    /// Starts Prometheus without targets. It evaluates the rules.
    pub fn start(program: &PathBuf, world: &World, pace: &Pace) -> Self {
        let dir = world.bed.dir().join("prometheus");
        // Data of an earlier test on this bed would show its operators for five minutes more.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        // JSON is YAML.
        fs::write(dir.join("rules.yaml"), pace.rules.to_string()).unwrap();
        let discovered = json!([{ "files": ["targets.json"], "refresh_interval": "1s" }]);
        let mut scraped = json!({ "job_name": "compute-metrics", "file_sd_configs": discovered });
        scraped.as_object_mut().unwrap().extend(pace.ask.as_object().unwrap().clone());
        let config = json!({
            "global": { "scrape_interval": pace.scrape, "scrape_timeout": pace.scrape, "evaluation_interval": pace.evaluate },
            "rule_files": ["rules.yaml"],
            "scrape_configs": [scraped],
        });
        fs::write(dir.join("prometheus.yaml"), config.to_string()).unwrap();
        let address = format!("127.0.0.1:{}", free_port().unwrap());
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", dir.join("prometheus.yaml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address={address}"));
        let process = Process::spawn(world.bed.dir(), "prometheus", &mut command).unwrap();
        let client = Client::try_from(Config::new(format!("http://{address}").parse().unwrap())).unwrap();
        Self { _process: process, client, targets: dir.join("targets.json") }
    }

    /// Sets the scrape targets, each as a pod in its own namespace, because each runs in its own cluster.
    pub fn look_at<'a>(&self, operators: impl IntoIterator<Item = &'a Operator>) {
        self.ask_at(operators.into_iter().map(|operator| (operator.process.name(), operator.metrics_address())));
    }

    /// The same for pods by their names, each with an address, or with a URL.
    pub fn ask_at<'a>(&self, pods: impl IntoIterator<Item = (&'a str, String)>) {
        let targets = pods.into_iter().map(|(name, at)| {
            let mut labels = json!({ "namespace": name, "pod": name });
            let address = match at.split_once("://") {
                Some((scheme, address)) => {
                    labels["__scheme__"] = json!(scheme);
                    address
                }
                None => &*at,
            };
            json!({ "targets": [address], "labels": labels })
        });
        let whole = self.targets.with_extension("new");
        fs::write(&whole, targets.collect::<Value>().to_string()).unwrap();
        fs::rename(&whole, &self.targets).unwrap();
    }

    /// Starts Prometheus with the operators of this world, and waits until it has scraped each of them.
    pub async fn scraping(program: &PathBuf, world: &World, pace: &Pace) -> Self {
        let prometheus = Self::start(program, world, pace);
        prometheus.look_at(&world.operators);
        eventually("prometheus scrapes all of them", || async {
            let up = prometheus.ask(&format!("up{{{JOB}}} == 1")).await?;
            if up.len() == world.operators.len() { Ok(()) } else { Err(format!("{up:?}")) }
        })
        .await;
        prometheus
    }

    /// Returns the current result of a query.
    pub async fn ask(&self, query: &str) -> Result<Vec<Value>, String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
        let encoded: String = query
            .bytes()
            .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
            .collect();
        let request = http::Request::get(format!("/api/v1/query?query={encoded}")).body(Vec::new()).unwrap();
        let answer: Value = self.client.request(request).await.map_err(|e| format!("{query}: {e}"))?;
        answer["data"]["result"].as_array().cloned().ok_or(format!("{query}: {answer}"))
    }

    /// Returns the number of series of each metric. A histogram counts by its `_count` series.
    pub async fn series(&self) -> BTreeMap<String, usize> {
        let names = "__name__!~\".*_(bucket|sum)|scrape_.*|up|ALERTS.*\"";
        let counted = self.ask(&format!("count by (__name__) ({{{JOB},{names}}})")).await.unwrap();
        let count = |of: &Value| of["value"][1].as_str().unwrap().parse::<f64>().unwrap();
        // The numbers are whole and small.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let pair = |of: &Value| (of["metric"]["__name__"].as_str().unwrap().to_owned(), count(of) as usize);
        counted.iter().map(pair).collect()
    }
}
