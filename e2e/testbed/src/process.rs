//! Child processes that never outlive this process.
//!
//! A shell is started first and ignores signals. It reads the pids of the children from a pipe. The pipe closes when this process
//! ends, is killed or crashes. Then the shell kills the remaining children with SIGKILL, the youngest first. An API server hangs
//! on SIGTERM without its etcd, so etcd, the oldest, is the last.

use std::{
    fs::File,
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

const REAPER: &str = r#"trap '' INT TERM HUP QUIT PIPE
pids=""
while read -r op pid; do
  case "$op" in
    +) pids="$pid $pids" ;;
    -) left=""; for p in $pids; do [ "$p" = "$pid" ] || left="$left $p"; done; pids="$left" ;;
  esac
done
for p in $pids; do kill -9 "$p" 2>/dev/null; done"#;

struct Reaper {
    pipe: Mutex<std::process::ChildStdin>,
}

fn reaper() -> Result<&'static Reaper> {
    static REAPER_CELL: OnceLock<Result<Reaper, String>> = OnceLock::new();
    let started = REAPER_CELL.get_or_init(|| {
        let mut child = Command::new("sh")
            .args(["-c", REAPER])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|e| format!("cannot start sh: {e}"))?;
        let pipe = child.stdin.take().ok_or("sh has no stdin")?;
        Ok(Reaper { pipe: Mutex::new(pipe) })
    });
    started.as_ref().map_err(|e| anyhow::anyhow!(e.clone()))
}

impl Reaper {
    fn send(&self, op: char, pid: u32) {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(pipe, "{op} {pid}");
    }
}

/// A child process with its log file. Dropping it kills the process.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    /// True until the reaper has been told of its end. Later, its id may be that of another process.
    is_watched: bool,
}

impl Process {
    /// Starts `command` and appends its output to `<dir>/<name>.log`. It has its own process group, so that Ctrl-C on the
    /// terminal does not reach it.
    pub fn spawn(dir: &Path, name: &str, command: &mut Command) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let out = File::options().create(true).append(true).open(&log).with_context(|| log.display().to_string())?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {name} ({})", command.get_program().display()))?;
        reaper()?.send('+', child.id());
        Ok(Self { name: name.into(), child, log, is_watched: true })
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the path of its output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Returns the last lines of its output.
    pub fn tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// Returns its exit code after its end: `None` while it runs, -1 for a signal.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.child.try_wait().ok().flatten().map(|status| status.code().unwrap_or(-1))
    }

    /// Kills it (SIGKILL) and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let (true, Ok(reaper)) = (std::mem::take(&mut self.is_watched), reaper()) {
            reaper.send('-', self.child.id());
        }
    }

    /// Stops it with SIGTERM, and kills it after `grace`. Returns its exit code.
    pub async fn stop(&mut self, grace: Duration) -> i32 {
        signal(self.pid(), Signal::TERM);
        let deadline = tokio::time::Instant::now() + grace;
        while tokio::time::Instant::now() < deadline {
            if let Some(code) = self.exit_code() {
                self.kill();
                return code;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.kill();
        -1
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a signal to a process, if it exists.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// True if a process exists and is no zombie.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    if stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')) {
        return false;
    }
    i32::try_from(pid).ok().and_then(Pid::from_raw).is_some_and(|pid| test_kill_process(pid).is_ok())
}

/// Back-off of a stand-in's watch. kube's own back-off grows to half a minute, which would count as a delay of the operator.
#[derive(Debug)]
pub struct Soon;

impl Iterator for Soon {
    type Item = std::time::Duration;

    fn next(&mut self) -> Option<Self::Item> {
        Some(std::time::Duration::from_millis(500))
    }
}

impl kube::runtime::utils::Backoff for Soon {
    fn reset(&mut self) {}
}
