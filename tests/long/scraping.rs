//! Prometheus as a process beside a testbed, with the rules that come with the operator.

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

/// Whose metrics these are; that of the alerts and of the board.
pub const JOB: &str = "job=\"compute-metrics\"";

/// How often it scrapes and evaluates, and what.
pub struct Pace {
    pub scrape: &'static str,
    pub evaluate: &'static str,
    pub rules: Value,
    /// How targets are asked, where it is not by plain HTTP.
    pub ask: Value,
}

impl Default for Pace {
    /// Often, with the rules as they are.
    fn default() -> Self {
        Self { scrape: "2s", evaluate: "5s", rules: rules(), ask: json!({}) }
    }
}

/// The groups of rules that come with the operator, as Prometheus reads them.
pub fn rules() -> Value {
    let text = fs::read_to_string(path("config/components/alerts/rules.yaml")).unwrap();
    let [rules] = &testbed::manifests::documents(&text).unwrap()[..] else { panic!("one PrometheusRule") };
    rules["spec"].clone()
}

/// How the ServiceMonitor that comes with the operator has its targets asked, with the token in this file.
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

/// What `PROMETHEUS` names, or what is called so on the `PATH`; none when it does not run.
pub fn program() -> Option<PathBuf> {
    let program = std::env::var_os("PROMETHEUS").map_or_else(|| PathBuf::from("prometheus"), PathBuf::from);
    Command::new(&program).arg("--version").output().is_ok_and(|out| out.status.success()).then_some(program)
}

/// Prometheus itself, which ends when dropped.
pub struct Prometheus {
    _process: Process,
    client: Client,
    targets: PathBuf,
}

impl Prometheus {
    /// Scrapes operators, which are yet to be named, and evaluates rules.
    pub fn start(program: &PathBuf, world: &World, pace: &Pace) -> Self {
        let dir = world.bed.dir().join("prometheus");
        // One that another test had on this bed has seen its operators, and would tell of them for five minutes more.
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

    /// From now on it scrapes these, each as a pod in a namespace of its own: they are at home on clusters of their own.
    pub fn look_at<'a>(&self, operators: impl IntoIterator<Item = &'a Operator>) {
        self.ask_at(operators.into_iter().map(|operator| (operator.process.name(), operator.metrics_address())));
    }

    /// The same of pods by their names, each at an address.
    pub fn ask_at<'a>(&self, pods: impl IntoIterator<Item = (&'a str, String)>) {
        let targets = pods
            .into_iter()
            .map(|(name, address)| json!({ "targets": [address], "labels": { "namespace": name, "pod": name } }));
        let whole = self.targets.with_extension("new");
        fs::write(&whole, targets.collect::<Value>().to_string()).unwrap();
        fs::rename(&whole, &self.targets).unwrap();
    }

    /// The same with the operators of this world, once it has scraped each of them.
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

    /// What a query gives now.
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

    /// How many series there are of each metric; a histogram counts by its counts.
    pub async fn series(&self) -> BTreeMap<String, usize> {
        let names = "__name__!~\".*_(bucket|sum)|scrape_.*|up|ALERTS.*\"";
        let counted = self.ask(&format!("count by (__name__) ({{{JOB},{names}}})")).await.unwrap();
        let count = |of: &Value| of["value"][1].as_str().unwrap().parse::<f64>().unwrap();
        // Whole numbers, and small.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let pair = |of: &Value| (of["metric"]["__name__"].as_str().unwrap().to_owned(), count(of) as usize);
        counted.iter().map(pair).collect()
    }
}
