//! A recorded decision of a controller: the snapshot of a key, and the plan for it.

use std::{
    fmt::Debug,
    fs::File,
    io::Write,
    path::PathBuf,
    sync::{LazyLock, Mutex},
};

use serde::{Deserialize, Serialize};

/// A decision in the form of the operator's debug log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Look {
    pub controller: String,
    /// The time that was passed to the plan.
    pub now: String,
    /// The observed snapshot, as JSON.
    pub snapshot: String,
    /// The plan in Rust's `Debug` format.
    pub plan: String,
}

/// Returns the folder in `RECORD`.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os("RECORD").map(PathBuf::from)
}

/// Records a decision if `RECORD` is set. Operators do the same by their logs. Returns the plan.
#[allow(dead_code, reason = "for tests that call the plans themselves")]
pub fn recorded<O: Serialize, P: Debug>(controller: &str, observed: &O, now: &impl ToString, plan: P) -> P {
    static FILE: LazyLock<Option<Mutex<File>>> = LazyLock::new(|| {
        let file = folder()?.join(format!("looks-{}.log", std::process::id()));
        Some(Mutex::new(File::create(file).unwrap()))
    });
    if let Some(file) = &*FILE {
        let look = Look {
            controller: controller.to_owned(),
            now: now.to_string(),
            snapshot: serde_json::to_string(observed).unwrap(),
            plan: format!("{plan:?}"),
        };
        writeln!(file.lock().unwrap(), "{}", serde_json::to_string(&look).unwrap()).unwrap();
    }
    plan
}
