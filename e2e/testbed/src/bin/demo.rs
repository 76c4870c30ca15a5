//! One command that shows a Workload on its way: project, hub, two cells, and back.

use std::{
    collections::BTreeMap,
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::Parser;
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::{Value, json};
use testbed::{
    Options, Testbed, binaries,
    karmada::Flavour,
    manifests,
    operator::{self, Operator},
    pki::User,
};
use tokio::time::Instant;

const NAMESPACE: &str = "demo";
const WORKLOAD: &str = "hello";
/// How long the Workload may take to become available.
const PATIENCE: Duration = Duration::from_secs(90);

/// Starts a federation and the operator, applies a Workload for two cities, and shows its way.
#[derive(Parser)]
#[command(name = "cargo demo")]
struct Args {
    /// End after the scenario, with exit code 0 or 1
    #[arg(long)]
    once: bool,
    /// Print the result as one JSON object (progress goes to stderr)
    #[arg(long)]
    json: bool,
    /// Folder with Karmada's binaries; a stand-in runs without
    #[arg(long, env = "KARMADA_BIN", requires = "karmada_crds")]
    karmada_bin: Option<PathBuf>,
    /// Folder with Karmada's CRDs
    #[arg(long, env = "KARMADA_CRDS", requires = "karmada_bin")]
    karmada_crds: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let stop = async {
        let term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
        match term {
            Ok(mut term) => tokio::select! { _ = tokio::signal::ctrl_c() => {} _ = term.recv() => {} },
            Err(_) => drop(tokio::signal::ctrl_c().await),
        }
    };
    // Everything is dropped on the way out, whichever way that is, and takes its processes along.
    tokio::select! {
        ended = run(&args) => match ended {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("demo: {error:#}");
                if args.json {
                    println!("{}", json!({ "ok": false, "error": format!("{error:#}") }));
                }
                ExitCode::FAILURE
            }
        },
        () = stop => ExitCode::from(130),
    }
}

async fn run(args: &Args) -> Result<bool> {
    let began = Instant::now();
    let progress = |text: &str| eprintln!("[{:5.1}s] {text}", began.elapsed().as_secs_f64());
    let karmada = match (&args.karmada_bin, &args.karmada_crds) {
        (Some(bin), Some(crds)) => Flavour::Real { bin: bin.clone(), crds: crds.clone() },
        _ => Flavour::StandIn,
    };
    let binary = operator::build(&progress)?;
    let bed = Testbed::start(Options { karmada: karmada.clone(), ..Options::default() }, &progress).await?;
    progress("starting the operator: management, and one for each cell");
    let mut operators = vec![Operator::management(&bed, &binary, "operator-management", &["--leader-elect=true"])?];
    for city in bed.cells.keys() {
        operators.push(Operator::cell(&bed, &binary, city, &["--leader-elect=true"])?);
    }
    for operator in &mut operators {
        operator.wait_ready().await?;
    }
    let project = bed.project.client().await?;
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    manifests::apply_value(&project, namespace).await?;
    let text = std::fs::read_to_string(binaries::root().join("config/samples/workload.yaml"))?;
    let mut workload = manifests::documents(&text)?.pop().context("config/samples/workload.yaml is empty")?;
    workload["metadata"]["namespace"] = json!(NAMESPACE);
    progress("applying config/samples/workload.yaml: two instances in each of dfw and ord");
    let applied = Instant::now();
    manifests::apply_value(&project, workload).await?;
    let view = View::new(&bed).await?;
    let outcome = watch(&view, applied, args.json).await?;
    report(&outcome, &karmada, args.json)?;
    if args.once || !outcome.ok {
        if !outcome.ok {
            eprintln!("logs are in {} (set TESTBED_KEEP=1 to keep them)", bed.dir().display());
        }
        return Ok(outcome.ok);
    }
    invite(&bed);
    std::future::pending::<()>().await;
    Ok(true)
}

/// What the demo looks at.
struct View {
    project: Client,
    hub: Client,
    cells: BTreeMap<String, Client>,
}

struct Outcome {
    ok: bool,
    seconds: f64,
    cities: BTreeMap<String, Value>,
}

impl View {
    async fn new(bed: &Testbed) -> Result<Self> {
        let mut cells = BTreeMap::new();
        for (city, cell) in &bed.cells {
            cells.insert(city.clone(), cell.client().await?);
        }
        Ok(Self { project: bed.project.client().await?, hub: bed.hub.client().await?, cells })
    }

    /// One row per stage and city: object, where, what it says.
    async fn rows(&self) -> Result<(Vec<[String; 4]>, BTreeMap<String, Value>, bool)> {
        let workloads = list(&self.project, "Workload").await?;
        let workload = workloads.iter().find(|w| w.name_any() == WORKLOAD);
        let (available, said) = workload.map_or_else(|| (false, "-".into()), |w| condition(w, "Available"));
        let mut rows = vec![["Workload".into(), "project".into(), WORKLOAD.into(), said]];
        let projects = list(&self.project, "WorkloadDeployment").await?;
        let hubs = list(&self.hub, "WorkloadDeployment").await?;
        let policies = list(&self.hub, "PropagationPolicy").await?;
        let mut cities = BTreeMap::new();
        let mut all = available;
        for (city, cell) in &self.cells {
            let name = format!("{WORKLOAD}-edge-{city}");
            let of = |objects: &[DynamicObject]| objects.iter().find(|o| o.name_any() == name).cloned();
            let policy = policies.iter().find(|p| p.name_any() == format!("city-{city}"));
            rows.push([
                "  city policy".into(),
                "hub".into(),
                format!("city-{city}"),
                if policy.is_some() { "in place".into() } else { "-".into() },
            ]);
            let cells = list(cell, "WorkloadDeployment").await?;
            let instances = list(cell, "Instance").await?;
            for (place, object) in
                [("project", of(&projects)), ("hub", of(&hubs)), (&format!("cell {city}"), of(&cells))]
            {
                let said = object.as_ref().map_or("-".into(), deployment);
                rows.push(["  WorkloadDeployment".into(), place.into(), name.clone(), said]);
            }
            for instance in instances.iter().filter(|i| i.name_any().starts_with(&name)) {
                let (_, said) = condition(instance, "Ready");
                rows.push(["    Instance".into(), format!("cell {city}"), instance.name_any(), said]);
            }
            let status = of(&projects).map(|wd| wd.data["status"].clone()).unwrap_or_default();
            let full =
                status["readyReplicas"] == status["desiredReplicas"] && status["readyReplicas"].as_i64() > Some(0);
            all &= full;
            cities.insert(city.clone(), json!({ "available": full, "readyReplicas": status["readyReplicas"] }));
        }
        Ok((rows, cities, all))
    }
}

/// Shows the table until everything is available. On a terminal it updates in place, elsewhere each change is a line.
async fn watch(view: &View, applied: Instant, json: bool) -> Result<Outcome> {
    let live = std::io::stdout().is_terminal() && !json;
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let mut drawn = 0;
    loop {
        let (rows, cities, ok) = view.rows().await?;
        let seconds = applied.elapsed().as_secs_f64();
        if live {
            drawn = draw(&rows, seconds, drawn)?;
        } else {
            for [what, place, name, said] in &rows {
                let key = format!("{:<20} {place:<10} {name}", what.trim());
                if seen.insert(key.clone(), said.clone()).as_ref() != Some(said) && said != "-" {
                    eprintln!("+{seconds:6.2}s  {key:<60} {said}");
                }
            }
        }
        if ok || applied.elapsed() > PATIENCE {
            return Ok(Outcome { ok, seconds, cities });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn draw(rows: &[[String; 4]], seconds: f64, before: usize) -> Result<usize> {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(["object", "where", "name", "says"]);
    for row in rows {
        table.add_row(row);
    }
    let text = format!("{table}\n{seconds:.1} s since the Workload was applied\n");
    let mut out = std::io::stdout();
    if before > 0 {
        write!(out, "\x1b[{before}A\x1b[J")?;
    }
    write!(out, "{text}")?;
    out.flush()?;
    Ok(text.lines().count())
}

fn report(outcome: &Outcome, karmada: &Flavour, as_json: bool) -> Result<()> {
    let karmada = if *karmada == Flavour::StandIn { "stand-in" } else { "real" };
    if as_json {
        let result = json!({
            "ok": outcome.ok, "karmada": karmada, "cities": outcome.cities,
            "secondsToAvailable": (outcome.seconds * 1000.0).round() / 1000.0,
        });
        println!("{}", serde_json::to_string_pretty(&result)?);
    } else if outcome.ok {
        println!(
            "\nAvailable in both cities {:.2} s after the Workload was applied (Karmada: {karmada}).",
            outcome.seconds
        );
    } else {
        println!("\nNot available after {:.0} s.", outcome.seconds);
    }
    Ok(())
}

fn invite(bed: &Testbed) {
    let of = |plane: &testbed::control_plane::ControlPlane| plane.kubeconfig(User::Admin).display().to_string();
    println!("\nIt stays up until Ctrl-C. Kubeconfigs:\n");
    println!("  project  {}", of(&bed.project));
    println!("  hub      {}", of(&bed.hub));
    for (city, cell) in &bed.cells {
        println!("  {city}      {}", of(cell));
    }
    let built = binaries::cache().join("bin/kubectl");
    if built.is_file() {
        println!("\n  kubectl, if you have none: {}", built.display());
    }
    let project = of(&bed.project);
    println!(
        "\nThree things to try:

  1. Scale it, and watch instances come one after the other, each once the one before is ready:
     kubectl --kubeconfig {project} -n {NAMESPACE} patch workload {WORKLOAD} --type=json \\
       -p '[{{\"op\":\"replace\",\"path\":\"/spec/placements/0/scaleSettings/minReplicas\",\"value\":4}}]'
     kubectl --kubeconfig {project} -n {NAMESPACE} get workloaddeployments --watch

  2. Ask for a city that this project has not, and read why nothing comes of it:
     kubectl --kubeconfig {project} -n {NAMESPACE} patch workload {WORKLOAD} --type=json \\
       -p '[{{\"op\":\"add\",\"path\":\"/spec/placements/0/cityCodes/-\",\"value\":\"lhr\"}}]'
     kubectl --kubeconfig {project} -n {NAMESPACE} get workload {WORKLOAD} \\
       -o jsonpath='{{.status.placements[0].conditions[0].message}}'

  3. Delete it, and see that nothing is left anywhere:
     kubectl --kubeconfig {project} -n {NAMESPACE} delete workload {WORKLOAD}
     kubectl --kubeconfig {} get workloaddeployments,propagationpolicies --all-namespaces
",
        of(&bed.hub)
    );
}

async fn list(client: &Client, kind: &str) -> Result<Vec<DynamicObject>> {
    let (group, version) = if kind == "PropagationPolicy" {
        ("policy.karmada.io", "v1alpha1")
    } else {
        ("compute.datumapis.com", "v1alpha")
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    match api.list(&ListParams::default()).await {
        Ok(list) => Ok(list.items),
        Err(error) => bail!("cannot list {kind}: {error}"),
    }
}

fn condition(object: &DynamicObject, type_: &str) -> (bool, String) {
    let conditions = object.data["status"]["conditions"].as_array();
    let Some(found) = conditions.into_iter().flatten().find(|c| c["type"] == type_) else { return (false, "-".into()) };
    let text = |field: &str| found[field].as_str().unwrap_or_default();
    (text("status") == "True", format!("{type_}={} {}", text("status"), text("reason")))
}

fn deployment(object: &DynamicObject) -> String {
    let status = &object.data["status"];
    if status["replicas"].is_null() {
        return "no status yet".into();
    }
    format!("{}/{} ready, {}", status["readyReplicas"], status["desiredReplicas"], condition(object, "Available").1)
}
