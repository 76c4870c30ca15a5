//! `trace`: the way of a Workload to its cells and back, and its first broken link.

pub mod facts;
pub mod judge;
mod text;

use std::io::Write;

use jiff::Timestamp;

use self::{facts::Facts, judge::Trace};
use crate::{exit::Exit, flags, output::Output, planes::Planes};

/// What to trace.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Workload(String),
    Deployment(String),
}

impl Target {
    /// Reads `KIND/NAME`, or the kind and the name as two words.
    fn of(words: &[String]) -> Result<Self, String> {
        let (kind, name) = match words {
            [both] => {
                both.split_once('/').ok_or_else(|| format!("{both:?} must be KIND/NAME, such as workload/hello"))?
            }
            [kind, name] => (&**kind, &**name),
            _ => return Err("one object must be named, such as workload/hello".to_owned()),
        };
        let kind = kind.split('.').next().unwrap_or_default().to_ascii_lowercase();
        if name.is_empty() || name.contains('/') {
            return Err(format!("{name:?} is no name of an object"));
        }
        match &*kind {
            "workload" | "workloads" | "cwl" | "computeworkloads" => Ok(Self::Workload(name.to_owned())),
            "workloaddeployment" | "workloaddeployments" | "wd" => Ok(Self::Deployment(name.to_owned())),
            _ => Err(format!("{kind:?} cannot be traced; a workload or a workloaddeployment (wd) can")),
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
    let target = Target::of(&args.object).map_err(|error| (Exit::Usage, error))?;
    let planes = Planes::of(global).await.map_err(|error| (Exit::CouldNotAsk, error))?;
    let now = Timestamp::now();
    let facts = match &target {
        Target::Workload(name) => Facts::of_workload(&planes, name, now).await,
        Target::Deployment(name) => Facts::of_deployment(&planes, name, now).await,
    };
    let trace = Trace::of(&facts);
    output.print(out, &trace, |screen| text::text(&trace, screen))?;
    Ok(trace.exit())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
