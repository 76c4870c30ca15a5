//! The operator's binary as a process.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

use crate::{
    bed::Testbed,
    binaries::root,
    control_plane::{ControlPlane, START_TIMEOUT, free_port},
    meter::Meter,
    pki::User,
    process::Process,
};

/// Longest time after its end until an operator is started again.
const RESTART_AFTER: Duration = Duration::from_secs(5);

/// Builds the operator's binary in this build profile if necessary, and reports the progress.
pub fn build(progress: &dyn Fn(&str)) -> Result<PathBuf> {
    let binary = target_dir()?.join("compute-operator");
    progress("building compute-operator");
    let mut build = cargo("build");
    // Without a package, as the programs of this crate are built: the dependencies of both have the same features.
    build.args(["--color=never", "--bin", "compute-operator"]).stdout(Stdio::null()).stderr(Stdio::piped());
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let mut child = build.spawn().context("cannot run cargo")?;
    let (mut messages, mut meter) = (Vec::new(), None);
    for line in BufReader::new(child.stderr.take().context("cargo has no stderr")?).lines() {
        let line = line?;
        if is_package(&line) {
            meter.get_or_insert_with(|| Meter::new("compute-operator", packages(), progress)).one();
        } else {
            messages.push(line);
        }
    }
    if let Some(meter) = meter {
        meter.end();
    }
    if !child.wait()?.success() {
        bail!("cargo build failed:\n{}", messages.join("\n"));
    }
    Ok(binary)
}

fn cargo(verb: &str) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()).arg(verb);
    cargo
}

/// True if a line of cargo is a package that is being compiled.
fn is_package(line: &str) -> bool {
    line.trim_start().starts_with("Compiling ")
}

/// Returns the number of packages that a full build compiles beside those of this crate, or 0 if cargo does not print them.
fn packages() -> usize {
    let of = |package: &str| -> BTreeSet<String> {
        let tree = cargo("tree")
            .args(["--package", package, "--edges=normal,build", "--prefix=none", "--format={p}"])
            .output();
        let text = tree.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
        // cargo marks repeated packages.
        text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
    };
    of("compute-operator").difference(&of("testbed")).count()
}

fn target_dir() -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let dir = exe.parent().context("no folder")?;
    Ok(if dir.ends_with("deps") { dir.parent().context("no folder")?.to_path_buf() } else { dir.to_path_buf() })
}

/// A running operator.
#[derive(Debug)]
pub struct Operator {
    /// Its process.
    pub process: Process,
    command: Command,
    dir: PathBuf,
    health: u16,
    metrics: u16,
}

impl Operator {
    /// Starts management controllers for the testbed's projects and hub.
    pub fn management(bed: &Testbed, binary: &Path, name: &str, more: &[&str]) -> Result<Self> {
        let mut config = bed.options().management.clone();
        // An explicit discovery section replaces the default.
        let is_explicit = config.contains("discovery:\n");
        if let Some(milo) = bed.milo.as_ref().filter(|_| !bed.options().projects.is_empty() && !is_explicit) {
            let file = milo.kubeconfig(&User::Operator).display().to_string();
            config = format!(
                "{config}discovery:\n  mode: milo\n  discoveryKubeconfigPath: {file}\n  projectKubeconfigPath: {file}\n"
            );
        }
        let args: Vec<&str> = ["--enable-management-controllers=true"].iter().chain(more).copied().collect();
        Self::start(bed, binary, name, (&bed.project, &User::Operator), &config, &args)
    }

    /// Starts cell controllers on one cell.
    pub fn cell(bed: &Testbed, binary: &Path, city: &str, more: &[&str]) -> Result<Self> {
        let mut config = bed.options().cell.clone();
        let is_bare = bed.options().bare.iter().any(|bare| bare == city);
        if let Some(milo) = bed.milo.as_ref().filter(|_| bed.options().quota && !is_bare) {
            let file = milo.kubeconfig(&User::Quota).display().to_string();
            config = format!("{config}discovery:\n  quotaKubeconfigPath: {file}\n  clusterName: cell-{city}\n");
        }
        if bed.options().data {
            config += "featureFlags:\n  enableReferencedDataGate: true\n";
        }
        let mut args = vec!["--enable-cell-controllers=true"];
        args.extend(is_bare.then_some("--feature-gates=NetworkingIntegration=false"));
        args.extend(more);
        Self::start(
            bed,
            binary,
            &format!("operator-{city}"),
            (bed.cell(city)?, &User::Cell(city.into())),
            &config,
            &args,
        )
    }

    /// Starts an operator for a control plane, and on the hub as this user.
    fn start(
        bed: &Testbed,
        binary: &Path,
        name: &str,
        (plane, on_hub): (&ControlPlane, &User),
        config: &str,
        args: &[&str],
    ) -> Result<Self> {
        let kubeconfig = format!("--kubeconfig={}", plane.kubeconfig(&User::Operator).display());
        let hub = format!("--federation-kubeconfig={}", bed.hub.kubeconfig(on_hub).display());
        let gate = format!("--feature-gates=NetworkingIntegration={}", bed.options().networks.is_some());
        // Explicit flags come last, and win.
        let given = |flag: &str| args.iter().any(|arg| arg.starts_with(flag));
        let mut all: Vec<&str> = (!given("--kubeconfig")).then_some(kubeconfig.as_str()).into_iter().collect();
        // Logging every snapshot and plan takes time, and is only useful if the log is kept.
        all.extend((!bed.is_kept() && !given("--zap-log-level")).then_some("--zap-log-level=info"));
        all.extend((!given("--federation-kubeconfig")).then_some(hub.as_str()));
        all.extend((!given("--feature-gates")).then_some(gate.as_str()));
        all.extend(args);
        Self::with_config(bed.dir(), binary, name, config, &all)
    }

    /// Starts the operator with these flags, in addition to those for probes, metrics and logs.
    pub fn with_flags(dir: &Path, binary: &Path, name: &str, args: &[&str]) -> Result<Self> {
        Self::with_config(dir, binary, name, "", args)
    }

    /// Starts the operator with these flags and lines of the config file.
    pub fn with_config(dir: &Path, binary: &Path, name: &str, config: &str, args: &[&str]) -> Result<Self> {
        let (health, metrics) = (free_port()?, free_port()?);
        let file = dir.join(format!("{name}.yaml"));
        let head = "apiVersion: apiserver.config.datumapis.com/v1alpha1\nkind: WorkloadOperator";
        let plain = format!("metricsServer:\n  secureServing: false\n  bindAddress: 127.0.0.1:{metrics}\n");
        let plain = if config.contains("metricsServer:") { String::new() } else { plain };
        std::fs::write(&file, format!("{head}\n{plain}{config}"))?;
        let mut command = Command::new(binary);
        command
            .arg(format!("--server-config={}", file.display()))
            .arg(format!("--health-probe-bind-address=127.0.0.1:{health}"))
            .arg("--zap-encoder=console")
            .args((!args.iter().any(|arg| arg.starts_with("--zap-log-level"))).then_some("--zap-log-level=debug"))
            .args(args)
            .env("NO_COLOR", "1");
        let process = Process::spawn(dir, name, &mut command)?;
        Ok(Self { process, command, dir: dir.into(), health, metrics })
    }

    /// Restarts the operator unchanged after its end, and waits until it is ready.
    pub async fn start_again(&mut self) -> Result<()> {
        self.process = Process::spawn(&self.dir, self.process.name(), &mut self.command)?;
        self.wait_ready().await
    }

    /// Returns status code and body of a path of the health server.
    pub async fn probe(&self, path: &str) -> Result<(u16, String)> {
        get(self.health, path).await
    }

    /// Returns the address of its metrics for a scraper.
    pub fn metrics_address(&self) -> String {
        format!("127.0.0.1:{}", self.metrics)
    }

    /// Returns the text of the metrics.
    pub async fn metrics(&self) -> Result<String> {
        Ok(get(self.metrics, "/metrics").await?.1)
    }

    /// Waits until `/readyz` succeeds.
    pub async fn wait_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(code) = self.process.exit_code() {
                bail!("{} ended with {code}:\n{}", self.process.name(), self.process.tail());
            }
            match self.probe("/readyz").await {
                Ok((200, _)) => return Ok(()),
                Ok((_, body)) if Instant::now() > deadline => bail!("{} is not ready: {body}", self.process.name()),
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

/// Starts each operator again that has ended, as a kubelet does: one that loses its Lease ends, for example while the machine
/// sleeps. Never returns.
pub async fn keep(operators: &mut [Operator], progress: &dyn Fn(&str)) {
    loop {
        tokio::time::sleep(RESTART_AFTER).await;
        for operator in &mut *operators {
            let Some(code) = operator.process.exit_code() else { continue };
            progress(&format!("{} ended with {code}, and is started again", operator.process.name()));
            operator.process.kill(); // its watcher forgets its id, which a new process may get
            match Process::spawn(&operator.dir, operator.process.name(), &mut operator.command) {
                Ok(process) => operator.process = process,
                Err(error) => progress(&format!("{} cannot be started: {error:#}", operator.process.name())),
            }
        }
    }
}

async fn get(port: u16, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let (head, body) = text.split_once("\r\n\r\n").context("no HTTP answer")?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).context("no status")?;
    Ok((code, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test]
    async fn operator_that_ends_is_started_again() {
        let dir = std::env::temp_dir().join(format!("testbed-keep-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "exit 3"]);
        let process = Process::spawn(&dir, "operator-x", &mut command).unwrap();
        let mut operators = [Operator { process, command, dir: dir.clone(), health: 0, metrics: 0 }];
        let said = RefCell::new(Vec::new());
        let progress = |text: &str| said.borrow_mut().push(text.to_owned());
        let twice = async {
            while said.borrow().len() < 2 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            () = keep(&mut operators, &progress) => panic!("it returned"),
            ended = tokio::time::timeout(Duration::from_mins(1), twice) => ended.unwrap(),
        }
        assert_eq!(said.borrow()[0], "operator-x ended with 3, and is started again");
        std::fs::remove_dir_all(dir).unwrap();
    }
}
