//! chainsaw, the program that runs the suites of `e2e/suites`, if it is installed.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{bed::Testbed, binaries, control_plane::ControlPlane, managers::Managers, operator::Operator, pki::User};

/// Returns the program from `CHAINSAW` or the `PATH`, or `None` if it does not run.
pub fn find() -> Option<PathBuf> {
    let program = std::env::var_os("CHAINSAW").map_or_else(|| PathBuf::from("chainsaw"), PathBuf::from);
    let runs = Command::new(&program).arg("version").output().is_ok_and(|out| out.status.success());
    runs.then_some(program)
}

/// Returns the complaints of `chainsaw lint` about a file with a `test` or a `configuration`. `None` if the file is valid.
pub fn lint(program: &Path, what: &str, file: &Path) -> Result<Option<String>> {
    let out = Command::new(program).args(["lint", what, "--file"]).arg(file).output()?;
    let said = [out.stdout, out.stderr].concat();
    Ok((!out.status.success()).then(|| String::from_utf8_lossy(&said).into_owned()))
}

/// A run of the suites.
#[derive(Debug)]
pub struct Run<'a> {
    /// The program, from [`find`].
    pub program: PathBuf,
    /// True for the suites that need networks and quota, false for all others.
    pub gated: bool,
    /// Additional arguments of chainsaw.
    pub more: &'a [String],
    /// True if the output of chainsaw, thousands of lines, goes to the terminal. Otherwise it goes to `chainsaw.log` in the
    /// testbed's folder, and the error has its last lines if suites fail.
    pub shown: bool,
}

impl Run<'_> {
    /// Runs the suites on a testbed with these operators.
    ///
    /// # Errors
    /// Returns an error if a suite fails. The error names the folder with the logs and objects of the testbed.
    pub async fn on(&self, bed: &Testbed, operators: &mut [Operator]) -> Result<()> {
        let said = bed.dir().join("chainsaw.log");
        if passes(self, bed, operators, &said).await? {
            return Ok(());
        }
        let dir = binaries::cache().join("e2e-failed");
        dump(bed, &dir).context("suites have failed, and the objects cannot be stored")?;
        let said = if self.shown { "their names are above".to_owned() } else { end_of(&said) };
        bail!("suites have failed; objects and logs are in {}; {said}", dir.display())
    }
}

/// Returns the last lines of chainsaw's output.
fn end_of(said: &Path) -> String {
    const LINES: usize = 80;
    let said = fs::read_to_string(said).unwrap_or_default();
    let lines: Vec<&str> = said.lines().collect();
    format!("last lines of chainsaw:\n{}", lines[lines.len().saturating_sub(LINES)..].join("\n"))
}

async fn passes(run: &Run<'_>, bed: &Testbed, operators: &mut [Operator], said: &Path) -> Result<bool> {
    let managers = Managers::listen().await?;
    let of = |plane: &ControlPlane| plane.kubeconfig(&User::Admin).display().to_string();
    let mut command = tokio::process::Command::new(&run.program);
    command
        .current_dir(binaries::root())
        .args(["test", "e2e/suites", "--config", "e2e/chainsaw-config.yaml", "--parallel", "1"])
        .arg(format!("--selector=environment{}gated", if run.gated { "=" } else { "!=" }))
        .env("KUBECONFIG", of(&bed.project))
        .arg(format!("--cluster=downstream={}", of(&bed.hub)))
        .args(bed.cells.iter().map(|(city, cell)| format!("--cluster=pop-{city}={}", of(cell))))
        // The port at which `e2e/manager` stops and starts managers.
        .env("TESTBED_MANAGERS", managers.port()?.to_string())
        .kill_on_drop(true);
    // The suites' scripts call kubectl.
    let bin = binaries::find_with_kubectl(&|_| ())?;
    let path = std::env::var("PATH").unwrap_or_default();
    if !run.shown {
        let log = File::create(said)?;
        command.stdout(log.try_clone()?).stderr(log);
    }
    let ended = command.env("PATH", format!("{}:{path}", bin.display())).args(run.more).status();
    tokio::select! {
        status = ended => Ok(status.context("cannot run chainsaw")?.success()),
        ended = managers.serve(operators) => ended.map(|()| false),
    }
}

/// Writes the operator's and Karmada's objects on every control plane and all logs into `dir`, without the content of Secrets.
fn dump(bed: &Testbed, dir: &Path) -> Result<()> {
    const OURS: &str = "workloads,workloaddeployments,instances,namespaces,events.events.k8s.io";
    const OF_HUB: &str =
        "workloaddeployments,instances,namespaces,events.events.k8s.io,propagationpolicies,resourcebindings,clusters";
    let _ = fs::remove_dir_all(dir);
    fs::create_dir_all(dir)?;
    let kubectl = binaries::find_with_kubectl(&|_| ())?.join("kubectl");
    for plane in [&bed.project, &bed.hub].into_iter().chain(bed.cells.values()) {
        let kinds = if plane.name() == bed.hub.name() { OF_HUB } else { OURS };
        let companions = "configmaps,secrets --selector compute.datumapis.com/referenced-data=true --output name";
        for (what, args) in [("objects", format!("{kinds} --output yaml")), ("companions", companions.to_owned())] {
            let mut command = Command::new(&kubectl);
            command.arg(format!("--kubeconfig={}", plane.kubeconfig(&User::Admin).display()));
            let out = command.args(["get", "--all-namespaces"]).args(args.split(' ')).output()?;
            fs::write(dir.join(format!("{}-{what}.txt", plane.name())), [out.stdout, out.stderr].concat())?;
        }
    }
    for log in fs::read_dir(bed.dir())?.flatten().map(|entry| entry.path()) {
        let name = log.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if log.extension().is_some_and(|end| end == "log")
            && !name.starts_with("audit-")
            && !name.starts_with("apiserver-")
        {
            fs::copy(&log, dir.join(name))?;
        }
    }
    Ok(())
}
