//! A command that shows a Workload on its path (project, hub, two cells, and back), and how it survives failures.

mod story;
mod view;

use std::{
    collections::BTreeMap,
    io::{IsTerminal, Write},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;

pub use self::story::Step;
use self::view::{Seen, View};
use crate::{
    Options, Testbed,
    admission::{Webhooks, role, rule},
    binaries,
    control_plane::ControlPlane,
    karmada::Flavour,
    manifests,
    neighbours::grant,
    operator::Operator,
    picture,
    pki::User,
};

const NAMESPACE: &str = "demo";
/// Longest time for each part of the demo.
const PATIENCE: Duration = Duration::from_secs(90);
/// Time that the network services need for a network. It is long enough to be visible.
const NETWORK: Duration = Duration::from_millis(400);
/// Columns of the table.
const HEADER: [&str; 4] = ["object", "where", "name", "says"];
/// The commands that the demo proposes at its end, each with its purpose. They need the kubeconfig with all contexts.
pub const TRY_NEXT: [(&str, &str); 3] = [
    ("See the Workload, its cities and its Instances", "kubectl get compute -n demo"),
    (
        "Ask for three Instances in each city, which is more than the quota allows",
        r#"kubectl patch cwl hello -n demo --type=json --patch='[{"op": "replace", "path": "/spec/placements/0/scaleSettings/minReplicas", "value": 3}]'"#,
    ),
    (
        "Follow it from the project over the hub to the cells, and read what waits and why",
        "kubectl compute trace workload/hello -n demo --hub-context hub --cell-context cell-dfw=cell-dfw --cell-context cell-ord=cell-ord",
    ),
];
/// Each project with its Workload and the number of Instances in its initial quota. The first project needs one more.
const TENANTS: [(&str, &str, i64); 2] = [("shop", "hello", 3), ("lab", "probe", 1)];

/// Starts a federation and the operator, applies Workloads in two projects, and shows their way.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "cargo demo")]
pub struct Args {
    /// End after the scenario, with exit code 0 or 1
    #[arg(long)]
    pub once: bool,
    /// Print the result as one JSON object (progress goes to stderr)
    #[arg(long)]
    pub json: bool,
    /// Write the last table and the steps to this file, as an SVG picture
    #[arg(long, requires = "once")]
    pub picture: Option<PathBuf>,
    /// Folder with Karmada's binaries. Without it, a stand-in runs
    #[arg(long, env = "KARMADA_BIN", requires = "karmada_crds")]
    pub karmada_bin: Option<PathBuf>,
    /// Folder with Karmada's CRDs
    #[arg(long, env = "KARMADA_CRDS", requires = "karmada_bin")]
    pub karmada_crds: Option<PathBuf>,
}

/// Runs the demo with the operator's binary from `build`, and prints the result.
///
/// Without `once` it stays up until it is interrupted.
///
/// # Errors
///
/// Returns an error if the federation does not start, or a step does not end.
pub async fn run(args: &Args, build: impl FnOnce(&dyn Fn(&str)) -> Result<PathBuf>) -> Result<Outcome> {
    let began = Instant::now();
    let progress = |text: &str| eprintln!("[{:5.1}s] {text}", began.elapsed().as_secs_f64());
    let karmada = match (&args.karmada_bin, &args.karmada_crds) {
        (Some(bin), Some(crds)) => Flavour::Real { bin: bin.clone(), crds: crds.clone() },
        _ => Flavour::StandIn,
    };
    // The operator and the servers are built in parallel if necessary, to use all cores.
    let (binary, servers) = std::thread::scope(|both| {
        let servers = both.spawn(|| binaries::find_with_kubectl(&progress));
        (build(&progress), servers.join())
    });
    let binary = binary?;
    servers.map_err(|_| anyhow!("looking for the servers has failed"))??;
    let options = Options {
        karmada: karmada.clone(),
        networks: Some(NETWORK),
        quota: true,
        projects: TENANTS.map(|(project, _, _)| project.to_owned()).into(),
        ..Options::default()
    };
    let mut bed = Testbed::start(options, &progress).await?;
    progress("starting the operator: management with its admission webhooks, and one for each cell");
    let webhooks = Webhooks::new(&bed)?;
    bed.options_mut().management = webhooks.config();
    let mut operators = vec![Operator::management(&bed, &binary, "operator-management", &["--leader-elect=true"])?];
    for city in bed.cells.keys() {
        operators.push(Operator::cell(&bed, &binary, city, &["--leader-elect=true"])?);
    }
    for operator in &mut operators {
        operator.wait_ready().await?;
    }
    let view = View::new(&bed).await?;
    for (project, _, budget) in TENANTS {
        prepare(&view.projects[project], budget).await?;
        webhooks.ask_from(&view.projects[project]).await?;
    }
    progress("as tenant ada, applying config/samples/workload.yaml in project shop: a ConfigMap, a Secret, and a");
    progress("Workload that uses both, with two instances in each of dfw and ord");
    progress("applying a smaller one in project lab: one instance in dfw");
    let applied = Instant::now();
    for (project, name, _) in TENANTS {
        for object in sample(name)? {
            manifests::apply_value(&view.tenants[project], object).await?;
        }
    }
    let mut screen = Screen { live: std::io::stdout().is_terminal() && !args.json, applied, ..Screen::default() };
    let over = screen.watch(&view, |seen| seen.over_quota.is_some()).await?;
    let mut outcome = Outcome { over_quota: over.over_quota.clone(), ..Outcome::default() };
    if let Some((instance, why)) = &over.over_quota {
        screen
            .print(&format!("{instance} is over quota ({why}); the project's budget is raised from 3 instances to 4"));
        manifests::apply_value(&view.projects["shop"], grant(NAMESPACE, 4)).await?;
        let end = screen.watch(&view, |seen| seen.complete).await?;
        outcome = Outcome { ok: end.complete, seconds: applied.elapsed().as_secs_f64(), ..outcome };
        outcome.projects = end.projects;
    }
    if outcome.ok {
        screen.print(&format!(
            "all of it runs, in both projects and cities, {:.2} s after it was applied",
            outcome.seconds
        ));
        for step in Step::ALL {
            screen.print(step.happens());
            let took = step.play(&view).await?;
            screen.print(&format!("  {}: {:.2} s", step.ended(), took.as_secs_f64()));
            outcome.steps.push((step, took));
        }
    }
    report(&outcome, &karmada, args.json)?;
    if let Some(file) = args.picture.as_ref().filter(|_| outcome.ok) {
        let text = picture(view.look().await?.rows, &outcome);
        std::fs::write(file, text).with_context(|| file.display().to_string())?;
    }
    if args.once || !outcome.ok {
        if !outcome.ok {
            eprintln!("logs are in {} (set TESTBED_KEEP=1 to keep them)", bed.dir().display());
        }
        return Ok(outcome);
    }
    invite(&bed)?;
    std::future::pending().await
}

/// Creates a tenant's initial objects: a namespace, a network, a budget and rights. Creates also a Secret without permission for
/// the tenant.
async fn prepare(project: &Client, budget: i64) -> Result<()> {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    manifests::apply_value(project, namespace).await?;
    let network = json!({
        "apiVersion": "networking.datumapis.com/v1alpha", "kind": "Network",
        "metadata": { "name": "default", "namespace": NAMESPACE }, "spec": { "ipam": { "mode": "Auto" } },
    });
    manifests::apply_value(project, network).await?;
    manifests::apply_value(project, grant(NAMESPACE, budget)).await?;
    let (all, read) = (["*"], ["get", "list", "watch"]);
    let rules = json!([
        rule("compute.datumapis.com", &["workloads"], &all, &[]),
        rule("compute.datumapis.com", &["workloaddeployments", "instances"], &read, &[]),
        rule("quota.miloapis.com", &["resourceclaims"], &read, &[]),
        rule("networking.datumapis.com", &["networks"], &["get", "list", "use"], &["default"]),
        rule("", &["configmaps"], &all, &[]),
        rule("", &["secrets"], &["create"], &[]),
        rule("", &["secrets"], &["get", "update", "patch", "delete"], &["hello", "token"]),
    ]);
    for object in role(&User::Tenant.name(), NAMESPACE, &rules) {
        manifests::apply_value(project, object).await?;
    }
    let payroll =
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "payroll", "namespace": NAMESPACE } });
    manifests::apply_value(project, payroll).await?;
    Ok(())
}

/// Returns the sample under its own name. Under any other name, returns a smaller one in one city.
fn sample(name: &str) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(binaries::root().join("config/samples/workload.yaml"))?;
    let mut objects = manifests::documents(&text)?;
    for object in &mut objects {
        object["metadata"]["namespace"] = json!(NAMESPACE);
        if object["kind"] == "Workload" && object["metadata"]["name"] != name {
            object["metadata"]["name"] = json!(name);
            object["spec"]["placements"][0]["cityCodes"] = json!(["dfw"]);
            object["spec"]["placements"][0]["scaleSettings"]["minReplicas"] = json!(1);
        }
    }
    Ok(objects)
}

/// The result of the demo.
#[derive(Debug, Default)]
pub struct Outcome {
    /// True if everything succeeded.
    pub ok: bool,
    /// Seconds from the creation of the Workloads to the last ready Instance.
    pub seconds: f64,
    /// The Instance that waited for quota, with its message.
    pub over_quota: Option<(String, String)>,
    /// The cities of each project, as the project shows them.
    pub projects: BTreeMap<String, Value>,
    /// The steps, each with the time until everything was restored.
    pub steps: Vec<(Step, Duration)>,
}

/// Output of the table. On a terminal it is updated in place. Elsewhere each change is a line.
struct Screen {
    live: bool,
    applied: Instant,
    shown: BTreeMap<String, String>,
    drawn: usize,
}

impl Default for Screen {
    fn default() -> Self {
        Self { live: false, applied: Instant::now(), shown: BTreeMap::new(), drawn: 0 }
    }
}

impl Screen {
    /// Shows the state until `enough` returns true or the time is over.
    async fn watch(&mut self, view: &View, enough: impl Fn(&Seen) -> bool) -> Result<Seen> {
        let began = Instant::now();
        loop {
            let seen = view.look().await?;
            let seconds = self.applied.elapsed().as_secs_f64();
            if self.live {
                self.drawn = draw(&seen.rows, seconds, self.drawn)?;
            } else {
                for [what, place, name, state] in &seen.rows {
                    let key = format!("{:<20} {place:<12} {name}", what.trim());
                    if self.shown.insert(key.clone(), state.clone()).as_ref() != Some(state) && state != "-" {
                        eprintln!("+{seconds:6.2}s  {key:<60} {state}");
                    }
                }
            }
            if enough(&seen) || began.elapsed() > PATIENCE {
                return Ok(seen);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Prints a line of the demo below the table.
    fn print(&mut self, text: &str) {
        self.drawn = 0;
        let seconds = self.applied.elapsed().as_secs_f64();
        if self.live { println!("\n{text}\n") } else { eprintln!("+{seconds:6.2}s  {text}") }
    }
}

fn draw(rows: &[[String; 4]], seconds: f64, before: usize) -> Result<usize> {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(HEADER);
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
        let rounded = |seconds: f64| (seconds * 1000.0).round() / 1000.0;
        let steps: BTreeMap<_, _> =
            outcome.steps.iter().map(|(step, took)| (step.name(), rounded(took.as_secs_f64()))).collect();
        let result = json!({
            "ok": outcome.ok, "karmada": karmada, "projects": outcome.projects,
            "overQuota": outcome.over_quota.as_ref().map(|(instance, _)| instance),
            "secondsToAvailable": rounded(outcome.seconds), "secondsToMend": steps,
        });
        println!("{}", serde_json::to_string_pretty(&result)?);
    } else if outcome.ok {
        println!(
            "\nAll of it ran {:.2} s after the Workloads were applied, and runs after all that has happened since \
             (Karmada: {karmada}).",
            outcome.seconds
        );
    } else {
        println!("\nNot all of it runs after {:.0} s.", PATIENCE.as_secs_f64());
    }
    Ok(())
}

/// Returns the last table and the steps as a picture.
fn picture(mut rows: Vec<[String; 4]>, outcome: &Outcome) -> String {
    rows.insert(0, HEADER.map(str::to_owned));
    let mut below = vec![format!("all of it runs {:.1} s after it was applied, and then:", outcome.seconds)];
    for (step, took) in &outcome.steps {
        below.extend([String::new(), step.happens().to_owned()]);
        below.push(format!("  {}: {:.1} s", step.ended(), took.as_secs_f64()));
    }
    picture::svg("cargo demo --once", &rows, &below)
}

fn invite(bed: &Testbed) -> Result<()> {
    println!("\nIt stays up until Ctrl-C. Kubeconfigs:\n");
    let milo = bed.milo.as_ref().context("Milo does not run")?;
    for (project, _, _) in TENANTS {
        println!(
            "  project {project:<5} {} (as ada, its tenant)",
            milo.project_kubeconfig(project, &User::Tenant)?.display()
        );
    }
    let all = bed.contexts()?;
    let planes = [&bed.project, &bed.hub].into_iter().chain(bed.others.values()).chain(bed.cells.values());
    let contexts = planes.map(ControlPlane::name).collect::<Vec<_>>().join(", ");
    println!("  everything    {} (contexts {contexts})", all.display());
    println!("\nThree commands to try next, in another terminal:\n\n  export KUBECONFIG={}", all.display());
    for (number, (purpose, command)) in (1..).zip(TRY_NEXT) {
        println!("\n  {number}. {purpose}:\n     {command}");
    }
    println!("\n  kubectl compute is a plugin of this repository: cargo install --locked --path cli");
    let kubectl = binaries::cache().join("bin/kubectl");
    if kubectl.is_file() {
        println!("  kubectl, if you have none: {}", kubectl.display());
    }
    Ok(())
}
