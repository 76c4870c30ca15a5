//! `cargo testbed up`, `down`, `status`, `e2e`: a local federation for kubectl. `board`, `sbom`, `chart` and `install-files` write
//! generated files.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Result, bail};
use clap::{Args, Parser, Subcommand};
use rustix::process::Signal;
use testbed::{
    Options, Testbed,
    admission::Webhooks,
    binaries, chainsaw, chart,
    control_plane::client,
    dashboard,
    karmada::Flavour,
    operator::{self, Operator},
    process::{is_alive, signal},
    status, supply,
};
use tokio::time::Instant;

/// A federation of real API servers as plain local processes.
#[derive(Parser)]
#[command(name = "cargo testbed")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Start a testbed and leave it running
    Up(Wanted),
    /// End the testbed
    Down,
    /// Print if the testbed runs, where, and the operator's objects in its projects
    Status,
    /// Run the chainsaw suites of e2e/suites on a new testbed
    E2e {
        #[command(flatten)]
        wanted: Wanted,
        /// Run only the gated suites, on a testbed with webhooks and with cells that wait for networks and quota
        #[arg(long)]
        gated: bool,
        /// Arguments for chainsaw, such as `--include-test-regex NAME`
        #[arg(last = true)]
        chainsaw: Vec<String>,
    },
    /// Write the definitions as JSON schemas to a folder
    Schemas {
        /// The folder. It is created
        dir: PathBuf,
    },
    /// Regenerate the Grafana board
    Board,
    /// Print the bill of materials of the operator's binary, in CycloneDX's JSON
    Sbom,
    /// Write the Helm chart to a folder
    Chart(Written),
    /// Write one YAML file for each overlay to a folder
    InstallFiles(Written),
    /// Serve in the foreground; `up` starts this
    #[command(hide = true)]
    Serve(Wanted),
}

#[derive(Args, Clone)]
struct Written {
    /// Folder for the files. It is replaced
    dir: PathBuf,
    /// Version, without v. Default: that of Cargo.toml
    #[arg(long)]
    version: Option<String>,
    /// Image with its tag, as a node pulls it
    #[arg(long)]
    image: Option<String>,
}

impl Written {
    fn write(self, files: impl FnOnce(&chart::Release) -> Result<BTreeMap<String, String>>) -> Result<()> {
        let mut release = chart::Release::default();
        release.version = self.version.unwrap_or(release.version);
        release.image = self.image.unwrap_or(release.image);
        let files = files(&release)?;
        chart::write(&files, &self.dir)?;
        for name in files.keys() {
            println!("{}", self.dir.join(name).display());
        }
        Ok(())
    }
}

#[allow(clippy::struct_excessive_bools)] // switches of a command line are bools
#[derive(Args, Clone)]
struct Wanted {
    /// Cities, one cell each
    #[arg(long, value_delimiter = ',', default_value = "dfw,ord")]
    cells: Vec<String>,
    /// Folder with Karmada's binaries. Without it, a stand-in runs
    #[arg(long, env = "KARMADA_BIN", requires = "karmada_crds")]
    karmada_bin: Option<PathBuf>,
    /// Folder with Karmada's CRDs
    #[arg(long, env = "KARMADA_CRDS", requires = "karmada_bin")]
    karmada_crds: Option<PathBuf>,
    /// Run the operator too: management, and one for each cell
    #[arg(long)]
    operator: bool,
    /// Run no provider stand-in, so that Instances do not become ready
    #[arg(long)]
    no_provider: bool,
    /// Let Instances wait for their networks
    #[arg(long)]
    networks: bool,
    /// Let Instances wait for quota: a ResourceGrant in a namespace is the budget there
    #[arg(long)]
    quota: bool,
    /// Projects behind a stand-in for Milo, each with its API server. Without it, there is a single project
    #[arg(long, value_delimiter = ',')]
    projects: Vec<String>,
}

impl Wanted {
    fn options(&self, dir: Option<PathBuf>) -> Options {
        let karmada = match (&self.karmada_bin, &self.karmada_crds) {
            (Some(bin), Some(crds)) => Flavour::Real { bin: bin.clone(), crds: crds.clone() },
            _ => Flavour::StandIn,
        };
        Options {
            cells: self.cells.clone(),
            karmada,
            provider: !self.no_provider,
            networks: self.networks.then_some(Duration::ZERO),
            quota: self.quota,
            projects: self.projects.clone(),
            dir,
            ..Options::default()
        }
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![format!("--cells={}", self.cells.join(","))];
        for (flag, path) in [("karmada-bin", &self.karmada_bin), ("karmada-crds", &self.karmada_crds)] {
            arguments.extend(path.as_ref().map(|path| format!("--{flag}={}", path.display())));
        }
        arguments.extend(self.operator.then(|| "--operator".to_owned()));
        let switches = [("no-provider", self.no_provider), ("networks", self.networks), ("quota", self.quota)];
        arguments.extend(switches.iter().filter(|(_, set)| *set).map(|(flag, _)| format!("--{flag}")));
        if !self.projects.is_empty() {
            arguments.push(format!("--projects={}", self.projects.join(",")));
        }
        arguments
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let ended = match Cli::parse().verb {
        Verb::Up(wanted) => up(&wanted).await,
        Verb::Down => down().await,
        Verb::Status => return show().await.unwrap_or_else(complain),
        Verb::Schemas { dir } => testbed::schemas::write(&dir),
        Verb::Board => fs::write(binaries::root().join(dashboard::FILE), dashboard::text()).map_err(Into::into),
        Verb::Sbom => supply::bill_of_materials().map(|bill| println!("{bill:#}")),
        Verb::Chart(wanted) => wanted.write(chart::files),
        Verb::InstallFiles(wanted) => wanted.write(chart::install_files),
        Verb::Serve(wanted) => serve(&wanted).await,
        Verb::E2e { wanted, gated, chainsaw } => return e2e(wanted, gated, &chainsaw).await.unwrap_or_else(complain),
    };
    ended.map_or_else(complain, |()| ExitCode::SUCCESS)
}

#[allow(clippy::needless_pass_by_value)] // the shape map_or_else asks for
fn complain(error: anyhow::Error) -> ExitCode {
    eprintln!("testbed: {error:#}");
    ExitCode::FAILURE
}

fn env_file() -> PathBuf {
    binaries::cache().join("env")
}

fn pid_file() -> PathBuf {
    binaries::cache().join("up.pid")
}

fn log_file() -> PathBuf {
    binaries::cache().join("up.log")
}

fn running() -> Option<u32> {
    let pid = fs::read_to_string(pid_file()).ok()?.trim().parse().ok()?;
    is_alive(pid).then_some(pid)
}

/// Starts `serve` in the background, and shows its output until it is ready.
async fn up(wanted: &Wanted) -> Result<()> {
    if running().is_some() {
        println!("already up:\n{}", fs::read_to_string(env_file()).unwrap_or_default());
        return Ok(());
    }
    fs::create_dir_all(binaries::cache())?;
    let _ = fs::remove_file(env_file());
    let log = fs::File::create(log_file())?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg("serve")
        .args(wanted.arguments())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()?;
    fs::write(pid_file(), child.id().to_string())?;
    let mut shown = 0;
    loop {
        let text = fs::read_to_string(log_file()).unwrap_or_default();
        print!("{}", &text[shown.min(text.len())..]);
        std::io::stdout().flush()?;
        shown = text.len();
        if env_file().is_file() {
            print!("\n{}\nThese lines are in {}\n", fs::read_to_string(env_file())?, env_file().display());
            return Ok(());
        }
        if child.try_wait()?.is_some() {
            let _ = fs::remove_file(pid_file());
            bail!("it did not come up; see {}", log_file().display());
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
            _ = tokio::signal::ctrl_c() => {
                signal(child.id(), Signal::TERM);
                let _ = child.wait();
                bail!("interrupted");
            }
        }
    }
}

async fn serve(wanted: &Wanted) -> Result<()> {
    let began = Instant::now();
    let progress = |text: &str| println!("[{:5.1}s] {text}", began.elapsed().as_secs_f64());
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let work = async {
        let dir = Some(binaries::cache().join("up"));
        binaries::find_with_kubectl(&progress)?;
        let bed = Testbed::start(wanted.options(dir), &progress).await?;
        let mut operators =
            if wanted.operator { start_operators(&bed, &progress, &["--leader-elect"]).await? } else { Vec::new() };
        let whole = env_file().with_extension("new");
        fs::write(&whole, bed.env())?;
        fs::rename(&whole, env_file())?;
        progress("up");
        operator::keep(&mut operators, &progress).await;
        Ok(())
    };
    let ended = tokio::select! {
        ended = work => ended,
        _ = term.recv() => Ok(()),
    };
    let _ = fs::remove_file(env_file());
    let _ = fs::remove_file(pid_file());
    ended
}

async fn start_operators(bed: &Testbed, progress: &dyn Fn(&str), flags: &[&str]) -> Result<Vec<Operator>> {
    let binary = operator::build(progress)?;
    progress("starting the operator");
    let mut operators = vec![Operator::management(bed, &binary, "operator-management", flags)?];
    for city in bed.cells.keys() {
        operators.push(Operator::cell(bed, &binary, city, flags)?);
    }
    for operator in &mut operators {
        operator.wait_ready().await?;
    }
    Ok(operators)
}

async fn down() -> Result<()> {
    let Some(pid) = running() else {
        println!("not running");
        return Ok(());
    };
    signal(pid, Signal::TERM);
    let deadline = Instant::now() + Duration::from_secs(15);
    while is_alive(pid) {
        if Instant::now() > deadline {
            signal(pid, Signal::KILL); // its watcher ends the processes that it started
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let _ = fs::remove_file(env_file());
    let _ = fs::remove_file(pid_file());
    println!("down");
    Ok(())
}

/// Prints the addresses, and the operator's objects in each project.
async fn show() -> Result<ExitCode> {
    let Some(pid) = running() else {
        println!("not running");
        return Ok(ExitCode::FAILURE);
    };
    let Ok(env) = fs::read_to_string(env_file()) else {
        println!("starting, process {pid}; see {}", log_file().display());
        return Ok(ExitCode::FAILURE);
    };
    println!("up, process {pid}\n{env}");
    for (name, kubeconfig) in status::projects(&env) {
        println!("{name}\n{}\n", status::table(&client(&kubeconfig).await?).await?);
    }
    Ok(ExitCode::SUCCESS)
}

async fn e2e(mut wanted: Wanted, gated: bool, more: &[String]) -> Result<ExitCode> {
    let Some(program) = chainsaw::find() else {
        bail!(
            "chainsaw is not on the PATH: run `.ci/tools chainsaw` and set CHAINSAW to target/tools/bin/chainsaw, or run `cargo test --test it suites`, which needs none"
        )
    };
    let began = Instant::now();
    let progress = |text: &str| println!("[{:5.1}s] {text}", began.elapsed().as_secs_f64());
    wanted.operator = true;
    wanted.no_provider = true; // the suites are written for clusters that have none
    wanted.networks |= gated;
    wanted.quota |= gated;
    let mut bed = Testbed::start(wanted.options(None), &progress).await?;
    let webhooks = if gated { Some(Webhooks::new(&bed)?) } else { None };
    bed.options_mut().management.extend(webhooks.iter().map(Webhooks::config));
    let mut operators = start_operators(&bed, &progress, &["--leader-elect"]).await?;
    if let Some(webhooks) = &webhooks {
        webhooks.ask_from(&bed.project.client().await?).await?;
    }
    chainsaw::Run { program, gated, more, shown: true }.on(&bed, &mut operators).await?;
    Ok(ExitCode::SUCCESS)
}
