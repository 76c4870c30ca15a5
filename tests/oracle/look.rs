//! One look of a controller: what it knew of a key, and what it decided.

use std::{
    fmt::Debug,
    fs::File,
    io::Write,
    path::PathBuf,
    sync::{LazyLock, Mutex},
};

use serde::{Deserialize, Serialize};

/// A look as the operator's debug log has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Look {
    pub controller: String,
    /// The time that the plan was given.
    pub now: String,
    /// What was known, as JSON.
    pub snapshot: String,
    /// What was decided, as Rust writes it for debugging.
    pub plan: String,
}

/// The folder that `RECORD` names.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os("RECORD").map(PathBuf::from)
}

/// Records a look where `RECORD` is set, as operators do by their logs. Returns the plan.
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
