//! chainsaw, the program that runs the suites of `e2e/suites`, where somebody has installed it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{bed::Testbed, binaries, control_plane::ControlPlane, managers::Managers, operator::Operator, pki::User};

/// What `CHAINSAW` names, or what is called so on the `PATH`; none when it does not run.
pub fn find() -> Option<PathBuf> {
    let program = std::env::var_os("CHAINSAW").map_or_else(|| PathBuf::from("chainsaw"), PathBuf::from);
    let runs = Command::new(&program).arg("version").output().is_ok_and(|out| out.status.success());
    runs.then_some(program)
}

/// What `chainsaw lint` has against a file, which holds a `test` or a `configuration`; nothing where it is valid.
pub fn lint(program: &Path, what: &str, file: &Path) -> Result<Option<String>> {
    let out = Command::new(program).args(["lint", what, "--file"]).arg(file).output()?;
    let said = [out.stdout, out.stderr].concat();
    Ok((!out.status.success()).then(|| String::from_utf8_lossy(&said).into_owned()))
}

/// Runs the suites on a testbed that has these operators on it, those for a `gated` one or those for any other; `more` are
/// arguments for chainsaw. An error when they do not pass, which says where what was there is kept.
pub async fn run(
    program: PathBuf,
    bed: &Testbed,
    operators: &mut [Operator],
    gated: bool,
    more: &[String],
) -> Result<()> {
    if passes(program, bed, operators, gated, more).await? {
        return Ok(());
    }
    let dir = binaries::cache().join("e2e-failed");
    dump(bed, &dir).context("suites have failed, and what was there cannot be kept")?;
    bail!("suites have failed, chainsaw says above which; what was there is in {}", dir.display())
}

async fn passes(
    program: PathBuf,
    bed: &Testbed,
    operators: &mut [Operator],
    gated: bool,
    more: &[String],
) -> Result<bool> {
    let managers = Managers::listen().await?;
    let of = |plane: &ControlPlane| plane.kubeconfig(&User::Admin).display().to_string();
    let mut command = tokio::process::Command::new(program);
    command
        .current_dir(binaries::root())
        .args(["test", "e2e/suites", "--config", "e2e/chainsaw-config.yaml", "--parallel", "1"])
        .arg(format!("--selector=environment{}gated", if gated { "=" } else { "!=" }))
        .env("KUBECONFIG", of(&bed.project))
        .arg(format!("--cluster=downstream={}", of(&bed.hub)))
        .args(bed.cells.iter().map(|(city, cell)| format!("--cluster=pop-{city}={}", of(cell))))
        // Where `e2e/manager` asks for them to be stopped and started.
        .env("TESTBED_MANAGERS", managers.port()?.to_string())
        .kill_on_drop(true);
    // The suites' scripts call kubectl.
    let bin = binaries::find_with_kubectl(&|_| ())?;
    let path = std::env::var("PATH").unwrap_or_default();
    let run = command.env("PATH", format!("{}:{path}", bin.display())).args(more).status();
    tokio::select! {
        status = run => Ok(status.context("cannot run chainsaw")?.success()),
        ended = managers.serve(operators) => ended.map(|()| false),
    }
}

/// Writes what every control plane holds of ours and of Karmada's, without what Secrets contain, and what everybody has
/// logged, into `dir`.
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
