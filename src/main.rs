//! The binary: flags, logs, signals, exit code.

use std::{path::Path, process::ExitCode};

use compute_operator::{
    api::{crds, reason},
    config::{Command, Config, Flags, Invalid, LogFormat, Migration},
    io::{
        clients::Connection,
        credentials::{self, Source},
    },
    manager::{self, Failure},
    migration,
};
use tikv_jemallocator::Jemalloc;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::{layer::SubscriberExt as _, util::SubscriberInitExt as _};
use zeroizing_alloc::ZeroAlloc;

/// Wipes freed memory: the values of tenants' Secrets pass through buffers of several libraries.
#[global_allocator]
static WIPING: ZeroAlloc<Jemalloc> = ZeroAlloc(Jemalloc);

/// Exit code for an invalid configuration.
const BAD_CONFIG: u8 = 2;

fn main() -> ExitCode {
    let flags = match Flags::from_args(std::env::args_os()) {
        Ok(flags) => flags,
        Err(error) => return bad_config(&error.0),
    };
    if let Some(Command::Crds { dir }) = &flags.command {
        return match write_crds(dir) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => bad_config(&error),
        };
    }
    if flags.command == Some(Command::Reasons) {
        print!("{}", reason::page::text());
        return ExitCode::SUCCESS;
    }
    if let Some(Command::Migration(Migration::Status { federation_kubeconfig, federation_context })) = flags.command {
        return migration_status(&Source { path: Some(federation_kubeconfig), context: federation_context });
    }
    match configure(flags) {
        Ok(config) => run(config),
        Err(error) => bad_config(&error.0),
    }
}

fn configure(flags: Flags) -> Result<Config, Invalid> {
    let text = match &flags.server_config {
        Some(path) => {
            Some(std::fs::read_to_string(path).map_err(|e| Invalid(format!("config file {}: {e}", path.display())))?)
        }
        None => None,
    };
    Config::new(flags, text.as_deref())
}

fn run(config: Config) -> ExitCode {
    let logs = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let filtered = tracing_subscriber::registry().with(config.log_filter.clone());
    match config.log_format {
        LogFormat::Console => filtered.with(logs).init(),
        LogFormat::Json => filtered.with(logs.json().flatten_event(true)).init(),
    }
    // One thread does the work, also on a node with many cores. With two threads a restart took a quarter more CPU time (measured),
    // and the servers take most of the time anyway. The Lease has its own thread.
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return bad_config(&format!("cannot start: {error}")),
    };
    let ended = runtime.block_on(async {
        let stop = CancellationToken::new();
        let signals = stop.clone();
        tokio::spawn(async move {
            if let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
                tokio::select! { _ = term.recv() => {} _ = int.recv() => {} }
                tracing::info!("stopping");
                signals.cancel();
            }
        });
        Box::pin(manager::run(config, stop)).await
    });
    runtime.shutdown_background(); // a credential plugin that hangs would keep the process
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Config(error)) => bad_config(&error),
        Err(error) => {
            tracing::error!(%error, "exiting");
            ExitCode::FAILURE
        }
    }
}

fn migration_status(hub: &Source) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return bad_config(&format!("cannot start: {error}")),
    };
    let read = runtime.block_on(async {
        let hub = Connection::new(credentials::load(hub)?)?;
        migration::status(&hub).await.map_err(|e| e.to_string())
    });
    match read {
        Ok(table) => {
            print!("{table}");
            ExitCode::SUCCESS
        }
        Err(error) => bad_config(&error),
    }
}

fn write_crds(dir: &Path) -> Result<(), String> {
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    for (name, text) in crds::files()? {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

fn bad_config(error: &str) -> ExitCode {
    eprintln!("compute-operator: {error}");
    ExitCode::from(BAD_CONFIG)
}
