//! `cargo demo`: see [`testbed::demo`].

use std::process::ExitCode;

use clap::Parser;
use serde_json::json;
use testbed::{
    demo::{self, Args},
    operator,
};

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
    // Every exit drops the testbed, which ends its processes.
    tokio::select! {
        ended = demo::run(&args, operator::build) => match ended {
            Ok(outcome) => if outcome.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE },
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
