//! `trace`: the way of a Workload to its cells and back, and its first broken link; the same for parts of it.

pub mod cluster;
pub mod data;
mod dot;
pub mod facts;
pub mod instance;
pub mod judge;
pub mod text;

use std::{io::Write, time::Duration};

use jiff::Timestamp;
use serde::Serialize;

use self::{
    cluster::ClusterTrace,
    data::{DataFacts, DataTrace},
    facts::Facts,
    instance::{InstanceFacts, InstanceTrace},
    judge::Trace,
};
use crate::{
    exit::Exit,
    flags::{self, Form},
    hub::HubFacts,
    output::{self, Output},
    planes::Planes,
    screen::Screen,
    target::Target,
};

/// Time between two reads of a watch.
const PERIOD: Duration = Duration::from_secs(3);

/// A trace of any object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[allow(clippy::large_enum_variant)] // there is one at a time
enum Any {
    Way(Trace),
    Instance(InstanceTrace),
    Data(DataTrace),
    Cluster(ClusterTrace),
}

impl Any {
    async fn read(planes: &Planes, target: &Target, now: Timestamp) -> Self {
        match target {
            Target::Workload(name) => Self::Way(Trace::of(&Facts::of_workload(planes, name, now).await)),
            Target::Deployment(name) => Self::Way(Trace::of(&Facts::of_deployment(planes, name, now).await)),
            Target::Instance(name) => Self::Instance(InstanceTrace::of(&InstanceFacts::read(planes, name, now).await)),
            Target::Data(data) => Self::Data(DataTrace::of(&DataFacts::read(planes, data.clone(), now).await)),
            Target::Cluster(name) => Self::Cluster(ClusterTrace::of(&HubFacts::read(planes, now).await, name)),
        }
    }

    fn text(&self, screen: Screen) -> String {
        match self {
            Self::Way(trace) => text::text(trace, screen),
            Self::Instance(trace) => trace.text(screen),
            Self::Data(trace) => trace.text(screen),
            Self::Cluster(trace) => trace.text(screen),
        }
    }

    fn exit(&self) -> Exit {
        match self {
            Self::Way(trace) => trace.exit(),
            Self::Instance(trace) => trace.exit(),
            Self::Data(trace) => trace.exit(),
            Self::Cluster(trace) => trace.exit(),
        }
    }

    /// True if two traces differ in more than the time of their reads.
    fn differs(&self, other: &Self) -> bool {
        let at_zero = |any: &Self| {
            let mut any = any.clone();
            match &mut any {
                Self::Way(trace) => trace.time = Timestamp::UNIX_EPOCH,
                Self::Instance(trace) => trace.time = Timestamp::UNIX_EPOCH,
                Self::Data(trace) => trace.time = Timestamp::UNIX_EPOCH,
                Self::Cluster(trace) => trace.time = Timestamp::UNIX_EPOCH,
            }
            any
        };
        at_zero(self) != at_zero(other)
    }

    fn print(&self, output: Output, out: &mut dyn Write) -> Result<(), (Exit, String)> {
        match self {
            Self::Way(trace) if output.form() == Form::Dot => output::write(out, &dot::dot(trace)),
            any => output.print(out, any, |screen| any.text(screen)),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// One line, with the exit code.
pub async fn run(
    global: &flags::Global,
    args: &flags::Trace,
    output: Output,
    out: &mut dyn Write,
) -> Result<Exit, (Exit, String)> {
    let target = Target::of(&args.object)?;
    let is_way = matches!(target, Target::Workload(_) | Target::Deployment(_));
    if output.form() == Form::Dot && !is_way {
        return Err((Exit::Usage, "only the trace of a workload has the form dot".to_owned()));
    }
    let planes = Planes::of(global).await?;
    if !args.watch {
        let trace = Any::read(&planes, &target, Timestamp::now()).await;
        trace.print(output, out)?;
        return Ok(trace.exit());
    }
    let watch = watch(async || Any::read(&planes, &target, Timestamp::now()).await, output, out);
    match args.timeout {
        Some(timeout) => tokio::time::timeout(timeout, watch)
            .await
            .unwrap_or_else(|_| Err((Exit::Timeout, format!("it is not ready after {} s", timeout.as_secs())))),
        None => watch.await,
    }
}

/// Prints what `read` returns whenever it changes, until it is ready or the user interrupts.
async fn watch(read: impl AsyncFn() -> Any, output: Output, out: &mut dyn Write) -> Result<Exit, (Exit, String)> {
    let mut last: Option<Any> = None;
    let interrupt = tokio::signal::ctrl_c();
    tokio::pin!(interrupt);
    loop {
        let next = tokio::select! {
            next = read() => next,
            _ = &mut interrupt => return Ok(last.map_or(Exit::CouldNotAsk, |last| last.exit())),
        };
        if last.as_ref().is_none_or(|last| last.differs(&next)) {
            if last.is_some() && output.form() == Form::Text {
                output::write(out, &format!("\n--- {:.0}\n", Timestamp::now()))?;
            }
            next.print(output, out)?;
        }
        if next.exit() == Exit::Well {
            return Ok(Exit::Well);
        }
        last = Some(next);
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            _ = &mut interrupt => return Ok(last.map_or(Exit::CouldNotAsk, |last| last.exit())),
        }
    }
}

#[cfg(test)]
#[path = "parts_tests.rs"]
pub mod parts_tests;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;
